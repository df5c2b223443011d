package show

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/visible"
)

// The columns of a line. The last one is not aligned.
const (
	colNumber = iota
	colTime
	colInterface
	colEnds
	colProtocol
	colOp
	numColumns
)

// line is a line that is yet to be aligned, or text as it is.
type line struct {
	cols    [numColumns]string
	summary string
	marks   []capture.Mark
	ends    ends   // what becomes colEnds: names are learnt as the page fills
	more    bool   // belongs to the packet of the line above
	text    string // if this is set, nothing else is
	quiet   bool   // of little interest: acknowledgements and the like
	setup   bool   // makes or ends a connection
}

// lines makes one line of each message, and one of a packet that has none.
func (p *Printer) lines(s *capture.Stream, pkt *capture.Packet) []line {
	first := line{marks: slices.Clone(pkt.Marks), ends: endsOf(pkt)}
	first.cols[colNumber] = fmt.Sprint(pkt.Number)
	first.cols[colTime] = p.time(pkt)
	if len(s.Interfaces()) > 1 {
		first.cols[colInterface] = interfaceName(pkt.Interface)
	}
	first.cols[colProtocol] = pkt.Protocol
	if len(pkt.PDUs) == 0 {
		first.summary = visible.Line(pkt.Note)
		first.quiet = true
		return []line{first}
	}
	all := make([]line, 0, len(pkt.PDUs))
	for i := range pkt.PDUs {
		d := &pkt.PDUs[i]
		l := first
		if i > 0 { // the rest of the packet
			l = line{more: true}
			l.cols[colProtocol] = pkt.Protocol
		}
		l.cols[colOp], l.summary = d.Op(), d.Summary()
		l.setup = d.MPAStart != nil || d.RoCE != nil && d.RoCE.CM != nil
		l.quiet = strings.HasSuffix(l.cols[colOp], "ACKNOWLEDGE")
		if pkt.Note != "" && i == 0 { // why it is not whole
			l.summary += ", " + visible.Line(pkt.Note)
		}
		all = append(all, l)
	}
	return all
}

func interfaceName(i capture.Interface) string {
	if i.Name == "" {
		return fmt.Sprintf("#%d", i.Index)
	}
	return visible.Line(i.Name)
}

// time prints seconds to the microsecond, or to the nanosecond where they say
// more; the points are aligned.
func (p *Printer) time(pkt *capture.Packet) string {
	if pkt.Time.IsZero() {
		return "-"
	}
	d := pkt.SinceFirst
	if p.opts.Delta {
		d = pkt.Delta
	}
	return seconds(d)
}

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

// ends is from where a packet goes to where. It is comparable: one direction
// between two ends.
type ends struct {
	src, dst       netip.AddrPort
	srcMAC, dstMAC [6]byte // if there are no addresses
	mac            bool
	ports          bool // they mean something: those of RoCE do not
}

func endsOf(pkt *capture.Packet) ends {
	if pkt.IP.Version == 0 {
		return ends{mac: pkt.Link.HasMAC, srcMAC: pkt.Link.Src, dstMAC: pkt.Link.Dst}
	}
	e := ends{src: pkt.Src(), dst: pkt.Dst(), ports: pkt.TCP.Present || pkt.UDP.Present}
	if pkt.UDP.Present && pkt.UDP.DstPort == wire.Port { // the source only tells flows apart to routers
		e.ports = false
		e.src, e.dst = netip.AddrPortFrom(e.src.Addr(), 0), netip.AddrPortFrom(e.dst.Addr(), 0)
	}
	return e
}

// in prints the ends by the names that s knows of.
func (e ends) in(s *capture.Stream) string {
	switch {
	case e.src.Addr().IsValid():
		return e.host(s, e.src) + " → " + e.host(s, e.dst)
	case e.mac:
		return fmt.Sprintf("%v → %v", net.HardwareAddr(e.srcMAC[:]), net.HardwareAddr(e.dstMAC[:]))
	}
	return "-"
}

func (e ends) host(s *capture.Stream, end netip.AddrPort) string {
	name, ok := s.Host(end.Addr())
	switch {
	case !e.ports && ok:
		return visible.Line(name)
	case !e.ports:
		return end.Addr().String()
	case ok:
		return fmt.Sprintf("%s:%d", visible.Line(name), end.Port())
	}
	return end.String()
}
