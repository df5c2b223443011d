package capture

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// nameWidth is the width of the column of header names.
const nameWidth = 18

// details formats the headers of a packet, with as many fields per line as fit.
func (p *Printer) details(pkt *Packet) string {
	const indent = 4 + nameWidth
	width := p.opts.Width
	if width < 60 { // no terminal, or too narrow
		width = 120
	}
	var b strings.Builder
	if pkt.Truncated() > 0 {
		fmt.Fprintf(&b, "    %-*s%d of %d bytes\n", nameWidth, "recorded", len(pkt.Data), pkt.Length)
	}
	for _, h := range pkt.Headers() {
		used := indent
		name := "    " + truncate(h.Name, nameWidth-1)
		if p.opts.Colour {
			name = cyan + name + reset
		}
		b.WriteString(name)
		// gap is written before the next field: the first begins at the column indent.
		gap := strings.Repeat(" ", max(1, nameWidth-utf8.RuneCountInString(h.Name)))
		for i, f := range h.Fields {
			text := f.Name + " " + cli.PrintableLine(f.String())
			if i < len(h.Fields)-1 {
				text += ","
			}
			n := utf8.RuneCountInString(text) + 1
			if used+n > width && used > indent {
				gap, used = "\n"+strings.Repeat(" ", indent), indent
			}
			b.WriteString(gap + text)
			gap, used = " ", used+n
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// hexDump formats bytes like hexdump -C, indented.
func hexDump(b []byte) string {
	if len(b) == 0 {
		return "    no bytes\n"
	}
	dump := strings.TrimRight(hex.Dump(b), "\n")
	return "    " + strings.ReplaceAll(dump, "\n", "\n    ") + "\n"
}

// MarkKind is the type of a mark.
type MarkKind uint8

// Mark kinds.
const (
	MarkRetransmission MarkKind = iota // sequence numbers seen before
	MarkDuplicateAck
	MarkGap         // sequence numbers are missing before this packet
	MarkOutOfOrder  // the packet fills a gap
	MarkChecksum    // wrong ICRC, CRC or IP checksum
	MarkNak         // NAK or Terminate
	MarkRNR         // RNR NAK
	MarkRejected    // connection rejected or reset
	MarkCongestion  // ECN CE or CNP
	MarkMalformed   // protocol violation
	MarkMissingData // octets of a TCP stream were not captured
	MarkComment     // pcapng packet comment

	NumMarkKinds
)

var markNames = [NumMarkKinds]string{
	"retransmission", "duplicate-ack", "gap", "out-of-order", "bad-checksum", "nak", "rnr", "refused",
	"congestion", "malformed", "lost", "comment",
}

// String returns the name of the kind.
func (k MarkKind) String() string { return markNames[k] }

// Mark is a diagnostic of a packet, similar to Wireshark's expert information.
type Mark struct {
	Kind MarkKind
	Text string // details
}

// hostNames maps addresses to host names.
type hostNames map[netip.Addr]string

// add stores the name of an address, unless the address has one or there are too many names.
func (n hostNames) add(a netip.Addr, name string) {
	const maxNames = 1 << 12 // names that are stored
	if _, known := n[a]; !known && len(n) < maxNames {
		n[a] = name
	}
}

// parseBlock adds the names of a pcapng name resolution block.
func (n hostNames) parseBlock(b []byte, order binary.ByteOrder) error {
	addrLens := map[uint16]int{1: 4, 2: 16} // of the records for IPv4 and IPv6; others are skipped
	for len(b) >= 4 {
		kind, size := order.Uint16(b), int(order.Uint16(b[2:]))
		b = b[4:]
		if kind == 0 { // nrb_record_end
			return nil
		}
		if size > len(b) {
			return errors.New("a name record is longer than its block")
		}
		if addrLen := addrLens[kind]; addrLen != 0 && size > addrLen {
			addr, _ := netip.AddrFromSlice(b[:addrLen])
			name, _, _ := strings.Cut(string(b[addrLen:size]), "\x00")
			if name != "" {
				n.add(addr, name)
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

// learn derives the name of a host from the interface that recorded its packet: captures of this
// program's fabrics name interfaces "host/nic".
func (n hostNames) learn(p *Packet, all []Interface) {
	name := p.Interface.Name
	host, _, ok := strings.Cut(name, "/")
	if !ok || p.Direction == DirectionUnknown {
		return
	}
	addr := p.IP.Src
	if p.Direction == Inbound {
		addr = p.IP.Dst
	}
	if _, known := n[addr]; known || !addr.IsValid() || addr.IsMulticast() || addr.IsUnspecified() {
		return
	}
	for i := range all { // a host with several NICs is named "host/nic"
		if i != p.Interface.Index && strings.HasPrefix(all[i].Name, host+"/") {
			host = name
			break
		}
	}
	n.add(addr, host)
}
