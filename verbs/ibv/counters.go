//go:build ibverbs && linux && cgo

package ibv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// sysfs is where the kernel shows its RDMA devices.
const sysfs = "/sys/class/infiniband"

// Counters tells the hardware counters that the kernel shows of the device and of its
// ports, in the order of their names. A device of several ports has the port's number
// before the name.
func (c *Context) Counters() []verbs.Counter { return countersIn(filepath.Join(sysfs, c.info.Name)) }

// countersIn reads the counters below the sysfs directory of a device.
func countersIn(device string) (all []verbs.Counter) {
	all = readCounters(filepath.Join(device, "hw_counters"), "")
	ports, _ := os.ReadDir(filepath.Join(device, "ports")) // sorted; none if there is no such folder
	for _, p := range ports {
		prefix := ""
		if len(ports) > 1 {
			prefix = fmt.Sprintf("port%s_", p.Name())
		}
		all = append(all, readCounters(filepath.Join(device, "ports", p.Name(), "hw_counters"), prefix)...)
	}
	return all
}

// readCounters reads the files of a folder that hold a number. One that does not is not
// a counter; lifespan is the age that the kernel lets values reach.
func readCounters(dir, prefix string) (all []verbs.Counter) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if f.Name() == "lifespan" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			all = append(all, verbs.Counter{Name: prefix + f.Name(), Value: v})
		}
	}
	return all
}
