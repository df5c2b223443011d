package bench

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// AvailableMemory returns MemAvailable of /proc/meminfo in bytes.
func AvailableMemory() (uint64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var kib uint64
		if line := in.Text(); strings.HasPrefix(line, "MemAvailable:") {
			if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
