source /tmp/newer/install.sh
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
export PYTHONPATH=$PYTHONPATH:/tmp/site:$PWD PYTHONUNBUFFERED=1
