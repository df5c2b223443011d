package netns

import (
	"fmt"
	"os"
	"strings"
)

// sysctl is a setting of the network namespace of the calling thread.
type sysctl struct {
	name, value string
	// neededFor names the feature that fails without it; empty if optional.
	neededFor string
}

// hostSysctls apply to every namespace, before it has interfaces.
var hostSysctls = []sysctl{
	{"net/ipv6/conf/all/disable_ipv6", "0", ""},
	{"net/ipv6/conf/default/disable_ipv6", "0", ""},
	// Replies to a host with several rails may arrive on any of them.
	{"net/ipv4/conf/all/rp_filter", "0", ""},
	{"net/ipv4/conf/default/rp_filter", "0", ""},
	// Where a host has loaded br_netfilter, as container engines do, bridged packets would pass the hooks of a
	// firewall, and no fabric has one.
	{"net/bridge/bridge-nf-call-iptables", "0", ""},
	{"net/bridge/bridge-nf-call-ip6tables", "0", ""},
}

// routerSysctls apply to routed switches, after they have interfaces.
var routerSysctls = []sysctl{
	{"net/ipv4/ip_forward", "1", "routing of IPv4"},
	{"net/ipv6/conf/all/forwarding", "1", "routing of IPv6"},
	{"net/ipv4/conf/all/send_redirects", "0", ""},
	{"net/ipv4/conf/default/send_redirects", "0", ""},
	// Hash the UDP source port: RoCE uses a different one for each QP.
	{"net/ipv4/fib_multipath_hash_policy", "1", "choice of a spine by the UDP source port"},
	{"net/ipv6/fib_multipath_hash_policy", "1", "choice of a spine by the UDP source port"},
}

// writeSysctls writes settings to /proc/sys. It fails only for those that a feature needs: in many
// containers /proc/sys is read-only, and most of a fabric works without them.
func writeSysctls(list []sysctl) error {
	for _, s := range list {
		err := os.WriteFile("/proc/sys/"+s.name, []byte(s.value), 0)
		if err != nil && s.neededFor != "" {
			return fmt.Errorf("%s: %w; /proc/sys must be writable: start a container with --security-opt systempaths=unconfined", s.neededFor, err)
		}
	}
	return nil
}

// readSysctl returns the value of a sysctl; empty if there is none.
func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
