package simlab

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// captureFile is the name of the capture before compression.
const captureFile = "capture.pcapng"

// capture writes each packet of all hosts to a file when it leaves its port. A packet that
// arrives changed is written a second time. At the end of the run, comments tell
// which packets were dropped, duplicated, changed or marked.
type capture struct {
	to      *pcaplink.Capture
	file    *os.File
	path    string // relative to Options.Dir
	ports   map[*sim.Port]*pcaplink.Interface
	sent    []sentPacket // by Datagram.Tag - 1
	written int          // packets in the file
}

// sentPacket is a packet that has left its port.
type sentPacket struct {
	record    int    // its number in the file
	checksum  uint32 // CRC32C of the payload
	tclass    uint8
	multicast bool  // or broadcast
	copies    uint8 // that arrived
	changed   bool
	marked    bool   // a copy arrived with a CE mark
	dropped   string // port and cause of the last drop
}

// addPort captures the packets of a port.
func (c *capture) addPort(p *sim.Port) {
	c.ports[p] = c.to.AddInterface(p.Name())
	p.Net().SetTap(c.tap)
	p.Net().SetDropTap(c.dropTap)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tap implements sim.Tap. It writes every packet that a port sends. It compares every copy that
// arrives with the sent packet: the simulation numbers sent packets from 1 in d.Tag, and their
// copies keep the number.
func (c *capture) tap(now mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
	sum := crc32.Checksum(d.Payload, castagnoli)
	if dir == sim.Out {
		dst := d.Dst.Addr()
		c.sent = append(c.sent, sentPacket{record: c.written, checksum: sum, tclass: d.TClass, multicast: dst.IsMulticast() || dst == limitedBroadcast})
		c.write(now, at, pcaplink.Outbound, d, "")
		return
	}
	s := &c.sent[d.Tag-1]
	s.copies++
	s.marked = s.marked || d.TClass != s.tclass
	if sum != s.checksum {
		s.changed = true
		c.write(now, at, pcaplink.Inbound, d, "fabrictest: as it arrived, changed on the path")
	}
}

// write appends a packet that port at sent or received (dir) to the capture file, with a comment.
func (c *capture) write(now mono.Time, at *sim.Port, dir pcaplink.Direction, d *link.Datagram, comment string) {
	c.ports[at].WriteWithComment(now, dir, d, comment)
	c.written++
}

// dropTap implements sim.DropTap: it records where and why a sent packet was dropped.
func (c *capture) dropTap(_ mono.Time, port, cause string, d *link.Datagram) {
	if d.Tag > 0 { // else it was dropped before it left its port, and is not in the file
		c.sent[d.Tag-1].dropped = fmt.Sprintf("%s, %s", port, cause)
	}
}

// writeSegment writes a segment of a stream to the file when it leaves a port, not when it arrives.
func (c *capture) writeSegment(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
	if dir == sim.Out {
		c.ports[at].WriteSegment(now, pcaplink.Outbound, s)
		c.written++
	}
}

// comments returns a function that maps a packet's index in the file to its comment, or to "".
func (c *capture) comments() func(i int) string {
	comments := make(map[int]string)
	for i := range c.sent {
		if text := c.sent[i].comment(); text != "" {
			comments[c.sent[i].record] = "fabrictest: " + text
		}
	}
	return func(i int) string { return comments[i] }
}

// comment tells whether a packet was lost, duplicated, changed or CE-marked; "" if it arrived as it
// was sent or is still in flight.
func (s *sentPacket) comment() string {
	switch {
	case s.copies == 0 && s.dropped != "":
		return "lost at " + s.dropped
	case s.copies > 1 && !s.multicast: // a multicast packet has a copy for each receiver
		return fmt.Sprintf("arrived %d times", s.copies)
	case s.changed:
		return "changed on the path"
	case s.marked:
		return "arrived with a congestion mark"
	}
	return ""
}

// limitedBroadcast is 255.255.255.255.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// newCapture creates the capture file of a scenario. The comment in the file is the command that
// repeats the run. newCapture returns nil if the options want no capture.
func newCapture(s *scenarios.Scenario, opts *lab.Options) (*capture, error) {
	if !opts.Capture.Any() || opts.Dir == "" {
		return nil, nil
	}
	folder := opts.Folder(s, scenarios.Sim)
	if err := os.MkdirAll(filepath.Join(opts.Dir, folder), 0o755); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &capture{path: filepath.Join(folder, captureFile), ports: make(map[*sim.Port]*pcaplink.Interface)}
	var err error
	if c.file, err = os.Create(filepath.Join(opts.Dir, c.path)); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c.to = pcaplink.NewCapture(c.file, pcaplink.Options{Comment: opts.Replay})
	return c, nil
}

// close completes and compresses the file if keep is set, and returns its entry in the report.
// Else, or if that fails, it removes the file and its folder, which has no other. Both results are
// nil if c is nil.
func (c *capture) close(keep bool) (*report.File, error) {
	if c == nil {
		return nil, nil
	}
	err := errors.Join(c.to.Close(), c.file.Close())
	var size int64
	if err == nil && keep {
		_, size, err = pcaplink.Compress(c.file.Name(), c.comments())
	}
	if err != nil || !keep {
		_ = os.Remove(c.file.Name())
		_ = os.Remove(filepath.Dir(c.file.Name()))
	}
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", c.path, err)
	}
	if !keep {
		return nil, nil
	}
	return &report.File{Kind: "capture", Path: filepath.ToSlash(c.path) + pcaplink.CompressedSuffix, Size: size}, nil
}

// readCounters adds to the observation the counters of both directions of every
// cable, and how often events were executed.
func (f *fabric) readCounters(o *lab.Observation) {
	links := lab.NewLinks(f.plan)
	for i := range f.simPorts {
		p := &f.plan.Ports[i]
		out, in := links.At(i) // the directions of the port's cable
		f.addPortCounters(f.simPorts[i], out, in)
		outPipe, inPipe := f.simPorts[i].Impairments()
		if s := f.streamPorts[i]; s != nil {
			outPipe, inPipe = s.pipes[lab.Out], s.pipes[lab.In]
			o.CountStreamEvents(s.matchers[lab.Out])
			o.CountStreamEvents(s.matchers[lab.In])
			f.addStreamCounters(s, out, in)
		}
		for _, d := range []struct {
			pipe *impair.Pipe
			link *report.Link
			plan *lab.Impairments
		}{{outPipe, out, &p.Out}, {inPipe, in, &p.In}} {
			if d.pipe == nil {
				continue
			}
			lab.AddPipeCounters(d.link, d.pipe.Counters())
			if f.streamPorts[i] == nil { // else CountStreamEvents has counted them
				o.CountEvents(d.plan, d.pipe.Fired())
			}
			if err := d.pipe.Err(); err != nil {
				o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", p.Name, err))
			}
		}
	}
	for i := range links.All {
		links.All[i].RateBps = cmp.Or(links.All[i].RateBps, defaultRate)
	}
	o.Links = links.All
}

// addPortCounters writes the counters of a port or trunk to the two links of its cable: out is the
// direction away from the port (or from the first end of the trunk), in the direction to it.
// Without switches the cable connects two hosts, and its packets are counted once, at the sender.
func (f *fabric) addPortCounters(at simPort, out, in *report.Link) {
	switch at := at.(type) {
	case *sim.Port:
		s := at.Stats()
		out.Packets, out.Bytes = s.Out.Packets, s.Out.Bytes
		if len(f.plan.Topology.Switches) > 0 {
			in.Packets, in.Bytes = s.In.Packets, s.In.Bytes
		}
		in.Marked += s.Marked // by the queue towards the port
		addDrops(out, s.DropsOut)
		addDrops(in, s.DropsIn)
	case *sim.Trunk:
		ab, ba := at.Stats()
		for _, d := range []struct {
			link  *report.Link
			stats sim.Stats
		}{{out, ab}, {in, ba}} {
			d.link.Packets, d.link.Bytes = d.stats.Out.Packets, d.stats.Out.Bytes
			d.link.Marked += d.stats.Marked
			addDrops(d.link, d.stats.Drops)
		}
	}
}

// addStreamCounters adds the segments of a port's streams to the links of both
// directions of its cable. Without switches they are counted once, at the sender.
func (f *fabric) addStreamCounters(s *streamPort, out, in *report.Link) {
	lab.AddLost(out, "event", s.drops[lab.Out])
	lab.AddLost(in, "event", s.drops[lab.In])
	out.Packets += s.traffic[lab.Out].packets
	out.Bytes += s.traffic[lab.Out].bytes
	if len(f.plan.Topology.Switches) > 0 {
		in.Packets += s.traffic[lab.In].packets
		in.Bytes += s.traffic[lab.In].bytes
	}
}

// addDrops adds drops to a link's losses, by cause.
func addDrops(l *report.Link, d sim.Drops) {
	lab.AddLost(l, "no_route", d.NoRoute)
	lab.AddLost(l, "expired", d.Expired)
	lab.AddLost(l, "too_big", d.TooBig)
	lab.AddLost(l, "link_down", d.LinkDown)
	lab.AddLost(l, "partition", d.Partitioned)
	lab.AddLost(l, "queue_full", d.QueueFull)
	lab.AddLost(l, "receive_full", d.ReceiveFull)
}
