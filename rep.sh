n=$1; shift
for i in $(seq $n); do "$@" >build/rep.$i.log 2>&1 && echo ok || { echo "FAIL $i"; grep -E "^not ok|error|#" build/rep.$i.log | head -5; }; done
