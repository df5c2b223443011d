package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// arpNote summarises an ARP packet.
func arpNote(b []byte) string {
	if len(b) < 28 || binary.BigEndian.Uint32(b) != 0x00010800 || b[4] != 6 || b[5] != 4 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	mac, from, to := net.HardwareAddr(b[8:14]), netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:]))
	switch op := binary.BigEndian.Uint16(b[6:]); {
	case op == 1 && from == to:
		return fmt.Sprintf("%v announces itself at %v", from, mac)
	case op == 1:
		return fmt.Sprintf("who has %v? tell %v", to, from)
	case op == 2:
		return fmt.Sprintf("%v is at %v", from, mac)
	default:
		return fmt.Sprintf("operation %d", op)
	}
}

func icmpNote(b []byte) string {
	if len(b) < 8 {
		return "cut off"
	}
	switch b[0] {
	case 0, 8:
		return fmt.Sprintf("echo %s, sequence %d", map[byte]string{0: "reply", 8: "request"}[b[0]], binary.BigEndian.Uint16(b[6:]))
	case 3:
		if b[1] == 4 {
			return fmt.Sprintf("too big for the path: at most %d bytes", binary.BigEndian.Uint16(b[6:]))
		}
		return fmt.Sprintf("destination unreachable, code %d%s", b[1], map[byte]string{1: " (host)", 2: " (protocol)", 3: " (port)"}[b[1]])
	case 11:
		return "time exceeded"
	}
	return fmt.Sprintf("type %d, code %d", b[0], b[1])
}

// icmpv6Names are the messages whose fields are not decoded.
var icmpv6Names = map[byte]string{
	3: "time exceeded", 4: "parameter problem", 130: "multicast listener query", 131: "multicast listener report",
	132: "multicast listener done", 133: "router solicitation", 134: "router advertisement", 137: "redirect",
	143: "multicast listener report",
}

func icmpv6Note(b []byte) string {
	if len(b) < 8 {
		return "cut off"
	}
	target := func() string {
		if len(b) < 24 {
			return "?"
		}
		return netip.AddrFrom16([16]byte(b[8:])).String()
	}
	switch b[0] {
	case 1:
		return fmt.Sprintf("destination unreachable, code %d%s", b[1], map[byte]string{0: " (no route)", 3: " (address)", 4: " (port)"}[b[1]])
	case 2:
		return fmt.Sprintf("too big for the path: at most %d bytes", binary.BigEndian.Uint32(b[4:]))
	case 128, 129:
		return fmt.Sprintf("echo %s, sequence %d", map[byte]string{128: "request", 129: "reply"}[b[0]], binary.BigEndian.Uint16(b[6:]))
	case 135:
		return "who has " + target() + "?"
	case 136:
		return target() + " is here"
	}
	if name := icmpv6Names[b[0]]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d, code %d", b[0], b[1])
}
