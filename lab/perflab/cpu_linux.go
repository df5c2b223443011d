package perflab

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/process"
)

// twoCPUs returns two CPUs, counted from 1, that this process may use and that are
// not threads of one core; zeros if there are none.
func twoCPUs() (a, b int) {
	cpus, _ := process.UsableCPUs() // none after an error
	for _, cpu := range cpus {
		if cpu != cpus[0] && !siblings(cpus[0], cpu) {
			return cpus[0] + 1, cpu + 1
		}
	}
	return 0, 0
}

// siblings reports whether two CPUs are threads of one core.
func siblings(a, b int) bool {
	list, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", a))
	if err != nil {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		low, high, ok := strings.Cut(part, "-")
		if !ok {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 == nil && err2 == nil && from <= b && b <= to {
			return true
		}
	}
	return false
}
