package capture

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/cli"
)

// Columns of a line.
const (
	colNumber = iota
	colTime
	colInterface
	colEndpoints
	colProtocol
	colOp
	numColumns
)

// line is a buffered output line: columns to be aligned, or plain text.
type line struct {
	cols      [numColumns]string
	summary   string
	marks     []Mark
	endpoints endpoints // becomes colEndpoints when the page is printed, with host names known by then
	more      bool      // another PDU of the previous line's packet
	text      string    // plain text; all other fields are unset
	dimmed    bool      // acknowledgements and packets without RDMA
	connSetup bool      // CM message or MPA start-up frame
}

// lines returns a line for each PDU of a packet, or one if it has none.
func (p *Printer) lines(s *Stream, pkt *Packet) []line {
	first := line{marks: slices.Clone(pkt.Marks), endpoints: endpointsOf(pkt)}
	first.cols[colNumber] = fmt.Sprint(pkt.Number)
	first.cols[colTime] = p.time(pkt)
	if len(s.interfaces) > 1 {
		first.cols[colInterface] = interfaceName(pkt.Interface)
	}
	first.cols[colProtocol] = pkt.Protocol
	if len(pkt.PDUs) == 0 {
		first.summary = cli.PrintableLine(pkt.Note)
		first.dimmed = true
		return []line{first}
	}
	all := make([]line, 0, len(pkt.PDUs))
	for i, d := range pkt.PDUs {
		l := first
		if i > 0 {
			l = line{more: true}
			l.cols[colProtocol] = pkt.Protocol
		}
		l.cols[colOp], l.summary = d.Op(), d.Summary()
		switch d := d.(type) {
		case *MPAStart:
			l.connSetup = true
		case *RoCE:
			l.connSetup = d.CM != nil
		}
		l.dimmed = strings.HasSuffix(l.cols[colOp], "ACKNOWLEDGE")
		if pkt.Note != "" && i == 0 { // why decoding stopped
			l.summary += ", " + cli.PrintableLine(pkt.Note)
		}
		all = append(all, l)
	}
	return all
}

// interfaceName returns the name of a capture's interface, or its number if it has no name.
func interfaceName(i Interface) string {
	if i.Name == "" {
		return fmt.Sprintf("#%d", i.Index)
	}
	return cli.PrintableLine(i.Name)
}

// time formats the seconds since the first packet or, with opts.Delta, since the previous packet.
func (p *Printer) time(pkt *Packet) string {
	if pkt.Time.IsZero() {
		return "-"
	}
	d := pkt.SinceFirst
	if p.opts.Delta {
		d = pkt.Delta
	}
	return seconds(d)
}

// seconds formats a duration with nine decimals, or six and spaces if the last three are zeros.
func seconds(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	t := fmt.Sprintf("%s%d.%09d", sign, d/time.Second, d%time.Second)
	if short, ok := strings.CutSuffix(t, "000"); ok {
		return short + "   "
	}
	return t
}

// endpoints are the source and destination of a packet. It is a map key.
type endpoints struct {
	src, dst       netip.AddrPort
	srcMAC, dstMAC [6]byte // for packets without IP
	mac            bool
	ports          bool // show ports; not for RoCE
}

// endpointsOf returns the endpoints of a packet: IP addresses, or MAC addresses without IP.
func endpointsOf(pkt *Packet) endpoints {
	if pkt.IP.Version == 0 {
		return endpoints{mac: pkt.Link.HasMAC, srcMAC: pkt.Link.Src, dstMAC: pkt.Link.Dst}
	}
	e := endpoints{src: pkt.Src(), dst: pkt.Dst(), ports: pkt.TCP.Present || pkt.UDP.Present}
	// The source port of RoCEv2 is only for ECMP: without ports, all packets between two hosts have
	// the same endpoints.
	if pkt.UDP.Present && pkt.UDP.DstPort == wire.Port {
		e.ports = false
		e.src, e.dst = netip.AddrPortFrom(e.src.Addr(), 0), netip.AddrPortFrom(e.dst.Addr(), 0)
	}
	return e
}

// format returns "source → destination" with the host names of s.
func (e endpoints) format(s *Stream) string {
	switch {
	case e.src.Addr().IsValid():
		return e.host(s, e.src) + " → " + e.host(s, e.dst)
	case e.mac:
		return fmt.Sprintf("%v → %v", net.HardwareAddr(e.srcMAC[:]), net.HardwareAddr(e.dstMAC[:]))
	}
	return "-"
}

// host formats one endpoint: its host name, or its address if s has none, and the port if shown.
func (e endpoints) host(s *Stream, end netip.AddrPort) string {
	name, ok := s.Host(end.Addr())
	switch {
	case !e.ports && ok:
		return cli.PrintableLine(name)
	case !e.ports:
		return end.Addr().String()
	case ok:
		return fmt.Sprintf("%s:%d", cli.PrintableLine(name), end.Port())
	}
	return end.String()
}

// arpNote summarises an ARP packet.
func arpNote(b []byte) string {
	if len(b) < 28 || binary.BigEndian.Uint32(b) != 0x00010800 || b[4] != 6 || b[5] != 4 { // not IPv4 over Ethernet
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

// icmpNote summarises an ICMP message.
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

// icmpv6Note summarises an ICMPv6 message.
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

// TerminalProperties returns the line width of w, 0 if it is not a terminal, and whether
// to use colour. It honours NO_COLOR, TERM and COLUMNS.
func TerminalProperties(w io.Writer) (width int, colour bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false
	}
	width = cli.TerminalWidth(f)
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
