package udplink

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Header lengths and maximum packet sizes of both families.
const (
	udpHeader  = 8
	ipv4Header = 20
	ipv6Header = 40
	maxIPv4    = 1<<16 - 1
	maxIPv6    = 1<<16 - 1 + ipv6Header
)

func headerLen(v6 bool) int {
	if v6 {
		return ipv6Header + udpHeader
	}
	return ipv4Header + udpHeader
}

// iface is the interface that owns a local address.
type iface struct {
	name  string
	index int // 0 if no interface is known
	mtu   int
}

// findInterface returns the interface that owns addr, in the caller's network namespace;
// the zero iface for wildcard addresses, and for those that no interface lists.
func findInterface(addr netip.Addr) (iface, error) {
	if addr.IsUnspecified() {
		return iface{}, nil
	}
	ifis, err := net.Interfaces()
	if err != nil {
		return iface{}, fmt.Errorf("list interfaces: %w", err)
	}
	var found []iface
	for _, ifi := range ifis {
		if z := addr.Zone(); z != "" && z != ifi.Name && z != strconv.Itoa(ifi.Index) {
			continue
		}
		if hasAddr(ifi, addr.WithZone("")) {
			found = append(found, iface{ifi.Name, ifi.Index, ifi.MTU})
		}
	}
	switch {
	case len(found) > 1 && addr.IsLinkLocalUnicast():
		return iface{}, fmt.Errorf("%s and %s both own it: add a zone", found[0].name, found[1].name)
	case len(found) == 0:
		return iface{}, nil
	}
	return found[0], nil
}

// hasAddr reports whether ifi owns addr.
func hasAddr(ifi net.Interface, addr netip.Addr) bool {
	addrs, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(ipnet.IP)
		if ip.Unmap() == addr {
			return true
		}
		// All of 127.0.0.0/8 is local although lo lists only 127.0.0.1.
		if ifi.Flags&net.FlagLoopback != 0 && addr.IsLoopback() && ipnet.Contains(addr.AsSlice()) {
			return true
		}
	}
	return false
}

// effectiveMTU returns the MTU of cfg, or else of the interface.
func effectiveMTU(cfg Config, i iface) (int, error) {
	v6 := cfg.Local.Addr().Is6()
	lowest, highest := headerLen(v6)+1, maxIPv4
	if v6 {
		highest = maxIPv6
	}
	switch {
	case cfg.MTU == 0 && i.mtu == 0:
		return 0, fmt.Errorf("no interface owns %v, so its MTU is unknown: set Config.MTU", cfg.Local.Addr())
	case cfg.MTU == 0:
		return min(i.mtu, highest), nil
	case cfg.MTU < lowest || cfg.MTU > highest:
		return 0, fmt.Errorf("MTU %d, want %d to %d", cfg.MTU, lowest, highest)
	}
	return cfg.MTU, nil
}
