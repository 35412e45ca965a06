# usage: .record.sh SECONDS lesson ...   records one after the other, stops beginning new ones after SECONDS
limit=$1; shift; begin=$(date +%s)
for l in "$@"; do
  if [ $(( $(date +%s) - begin )) -gt $limit ]; then echo "NOT BEGUN: $l"; continue; fi
  timeout 240 python3 -m course.commands.record $l 2>&1 | grep -v "IPKernelApp\|encryption" | tail -25
done
mkdir -p $OUT/t && tar cf $OUT/t/traces.tar traces/nvidia-h*
