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

// recorder writes each packet to the capture when it leaves its port. A packet that
// arrives changed is written a second time. At the end of the run, comments tell
// which packets were dropped, duplicated, changed or marked.
type recorder struct {
	capture *pcaplink.Capture
	ports   map[*sim.Port]*pcaplink.Interface
	sent    []sentPacket // by Datagram.Tag - 1
	written int          // packets in the file
}

// sentPacket is a packet that has left its port.
type sentPacket struct {
	record    int    // its number in the file
	payload   uint32 // CRC32C
	tclass    uint8
	multicast bool  // or broadcast
	copies    uint8 // that arrived
	changed   bool
	marked    bool   // a copy arrived with a CE mark
	dropped   string // port and cause of the last drop
}

func newRecorder(to *pcaplink.Capture) *recorder {
	return &recorder{capture: to, ports: make(map[*sim.Port]*pcaplink.Interface)}
}

// addPort captures the packets of a port.
func (r *recorder) addPort(p *sim.Port) {
	r.ports[p] = r.capture.AddInterface(p.Name())
	p.Net().SetTap(r.tap)
	p.Net().SetDropTap(r.dropTap)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tap implements sim.Tap.
func (r *recorder) tap(now mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
	sum := crc32.Checksum(d.Payload, castagnoli)
	if dir == sim.Out {
		dst := d.Dst.Addr()
		r.sent = append(r.sent, sentPacket{record: r.written, payload: sum, tclass: d.TClass, multicast: dst.IsMulticast() || dst == limitedBroadcast})
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
	r.ports[at].WriteWithComment(now, dir, d, comment)
	r.written++
}

// dropTap implements sim.DropTap.
func (r *recorder) dropTap(_ mono.Time, port, cause string, d *link.Datagram) {
	if d.Tag > 0 {
		r.sent[d.Tag-1].dropped = fmt.Sprintf("%s, %s", port, cause)
	}
}

// writeSegment writes a segment of a stream when it leaves its port.
func (r *recorder) writeSegment(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
	if dir == sim.Out {
		r.ports[at].WriteSegment(now, pcaplink.Outbound, s)
		r.written++
	}
}

// comments returns a function from the number of a packet in the file to its
// comment.
func (r *recorder) comments() func(i int) string {
	comments := make(map[int]string)
	for i := range r.sent {
		if c := r.sent[i].comment(); c != "" {
			comments[r.sent[i].record] = "fabrictest: " + c
		}
	}
	return func(i int) string { return comments[i] }
}

// comment describes what happened to a packet; empty if it arrived unchanged.
func (s *sentPacket) comment() string {
	switch {
	case s.copies == 0 && s.dropped != "":
		return "lost at " + s.dropped
	case s.copies > 1 && !s.multicast:
		return fmt.Sprintf("arrived %d times", s.copies)
	case s.changed:
		return "changed on the way"
	case s.marked:
		return "arrived with a congestion mark"
	}
	return ""
}

// limitedBroadcast is 255.255.255.255.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
