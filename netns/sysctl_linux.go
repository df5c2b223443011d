package netns

import (
	"fmt"
	"os"
	"strings"
)

// A sysctl of the network namespace that the calling thread is in.
type sysctl struct {
	name, value string
	// needed is what does not work without it; empty if it is only for order.
	needed string
}

// hostSysctls are for every namespace, before it has interfaces.
var hostSysctls = []sysctl{
	{"net/ipv6/conf/all/disable_ipv6", "0", ""},
	{"net/ipv6/conf/default/disable_ipv6", "0", ""},
	// A host of several rails may be answered on any of them.
	{"net/ipv4/conf/all/rp_filter", "0", ""},
	{"net/ipv4/conf/default/rp_filter", "0", ""},
}

// routerSysctls are for routed switches, once they have their interfaces.
var routerSysctls = []sysctl{
	{"net/ipv4/ip_forward", "1", "routing of IPv4"},
	{"net/ipv6/conf/all/forwarding", "1", "routing of IPv6"},
	{"net/ipv4/conf/all/send_redirects", "0", ""},
	{"net/ipv4/conf/default/send_redirects", "0", ""},
	// The source port chooses the way: RoCE has one for each queue pair.
	{"net/ipv4/fib_multipath_hash_policy", "1", "choice of a spine by the UDP source port"},
	{"net/ipv6/fib_multipath_hash_policy", "1", "choice of a spine by the UDP source port"},
}

// writeSysctls fails only on what is needed: in many containers /proc/sys is
// read-only, and most of a fabric works all the same.
func writeSysctls(list []sysctl) error {
	for _, s := range list {
		err := os.WriteFile("/proc/sys/"+s.name, []byte(s.value), 0)
		if err != nil && s.needed != "" {
			return fmt.Errorf("%s: %w; /proc/sys must be writable: start a container with --security-opt systempaths=unconfined", s.needed, err)
		}
	}
	return nil
}

// readSysctl is the value of a sysctl; empty if there is none.
func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
