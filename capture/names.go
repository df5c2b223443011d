package capture

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// maxNames bounds the number of host names.
const maxNames = 1 << 12

// hostNames maps addresses to host names.
type hostNames struct{ byAddr map[netip.Addr]string }

func (n *hostNames) add(a netip.Addr, name string) {
	if n.byAddr == nil {
		n.byAddr = make(map[netip.Addr]string)
	}
	if _, known := n.byAddr[a]; !known && len(n.byAddr) < maxNames {
		n.byAddr[a] = name
	}
}

// parseBlock reads a pcapng name resolution block.
func (n *hostNames) parseBlock(b []byte, order binary.ByteOrder) error {
	for len(b) >= 4 {
		kind, size := order.Uint16(b), int(order.Uint16(b[2:]))
		b = b[4:]
		if kind == 0 {
			return nil
		}
		if size > len(b) {
			return errors.New("a name record is longer than its block")
		}
		if width := map[uint16]int{1: 4, 2: 16}[kind]; width != 0 && size > width {
			addr, _ := netip.AddrFromSlice(b[:width])
			name, _, _ := strings.Cut(string(b[width:size]), "\x00")
			if name != "" {
				n.add(addr, name)
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

// learn derives the name of a host from the interface of its packets: captures of a
// fabric name interfaces "host/nic".
func (n *hostNames) learn(p *Packet, all []Interface) {
	name := p.Interface.Name
	if name == "" || p.Direction == DirectionUnknown || !strings.Contains(name, "/") {
		return
	}
	addr := p.IP.Src
	if p.Direction == Inbound {
		addr = p.IP.Dst
	}
	if !addr.IsValid() || addr.IsMulticast() || addr.IsUnspecified() {
		return
	}
	if _, known := n.byAddr[addr]; known {
		return
	}
	host, _, _ := strings.Cut(name, "/")
	for i := range all { // a host with several NICs is named "host/nic"
		if i != p.Interface.Index && strings.HasPrefix(all[i].Name, host+"/") {
			host = name
			break
		}
	}
	n.add(addr, host)
}
