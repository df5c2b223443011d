package simlab

import (
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// recorder writes each packet of the networks to the capture once, as it leaves its
// port. A packet that arrives changed is there a second time, as it arrived. What
// else became of a packet is told by a comment, which is known when the run has
// ended.
type recorder struct {
	to      *pcaplink.Capture
	ports   map[*sim.Port]*pcaplink.Interface
	sent    []sent // by the tag of the packet
	written int    // packets in the file
}

// sent is a packet that has left its port.
type sent struct {
	record  int // its number in the file
	payload uint32
	tclass  uint8
	group   bool // it goes to a multicast group, or to everybody
	copies  uint8
	changed bool
	marked  bool   // it arrived with a congestion mark
	dropped string // where a copy was, and why
}

func newRecorder(to *pcaplink.Capture) *recorder {
	return &recorder{to: to, ports: make(map[*sim.Port]*pcaplink.Interface)}
}

// watch has the packets of a port written.
func (r *recorder) watch(p *sim.Port) {
	r.ports[p] = r.to.Interface(p.Name())
	p.Net().SetTap(r.packet)
	p.Net().SetDropTap(r.drop)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packet is a sim.Tap.
func (r *recorder) packet(now mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
	sum := crc32.Checksum(d.Payload, castagnoli)
	if dir == sim.Out {
		dst := d.Dst.Addr()
		r.sent = append(r.sent, sent{record: r.written, payload: sum, tclass: d.TClass, group: dst.IsMulticast() || dst == limitedBroadcast})
		r.write(now, at, pcaplink.Outbound, d, "")
		return
	}
	s := &r.sent[d.Tag-1]
	s.copies++
	s.marked = s.marked || d.TClass != s.tclass
	if sum != s.payload {
		s.changed = true
		r.write(now, at, pcaplink.Inbound, d, "fabrictest: as it arrived, changed on the way")
	}
}

func (r *recorder) write(now mono.Time, at *sim.Port, dir pcaplink.Direction, d *link.Datagram, comment string) {
	r.ports[at].WriteNoted(now, dir, d, comment)
	r.written++
}

// drop is a sim.DropTap.
func (r *recorder) drop(_ mono.Time, place, cause string, d *link.Datagram) {
	if d.Tag > 0 {
		r.sent[d.Tag-1].dropped = fmt.Sprintf("%s, %s", place, cause)
	}
}

// segment writes a segment of a stream as it leaves its port.
func (r *recorder) segment(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
	if dir == sim.Out {
		r.ports[at].WriteSegment(now, pcaplink.Outbound, s)
		r.written++
	}
}

// comments returns the comment of each packet of the file by its number there.
func (r *recorder) comments() func(i int) string {
	comments := make(map[int]string)
	for i := range r.sent {
		if c := r.sent[i].comment(); c != "" {
			comments[r.sent[i].record] = "fabrictest: " + c
		}
	}
	return func(i int) string { return comments[i] }
}

// comment says what became of a packet; "" if it arrived as it was sent.
func (s *sent) comment() string {
	switch {
	case s.copies == 0 && s.dropped != "":
		return "lost at " + s.dropped
	case s.copies > 1 && !s.group:
		return fmt.Sprintf("arrived %d times", s.copies)
	case s.changed:
		return "changed on the way"
	case s.marked:
		return "arrived with a congestion mark"
	}
	return ""
}

// limitedBroadcast is everybody's address.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
