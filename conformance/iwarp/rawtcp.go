package iwarp

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// onRawTCP makes the body of a case from a function that uses a connection over raw TCP.
func onRawTCP(options conformance.TCPOptions, s setup, body func(*conn)) func(*conformance.Bench) error {
	return withRawTCP(func(h *host, tcp conformance.RawTCP) {
		tcp.SetOptions(options)
		body(h.connect(s))
	})
}

// withRawTCP makes the body of a case from a function that opens connections over raw TCP.
func withRawTCP(body func(*host, conformance.RawTCP)) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		if b.RawTCP == nil {
			return fmt.Errorf("%w: no raw TCP for the peer on this bench", conformance.ErrBenchCannot)
		}
		tcp, err := b.RawTCP()
		if err != nil {
			return err
		}
		bench := *b
		bench.Streams = tcp
		return onHost(func(h *host) { body(h, tcp) })(&bench)
	}
}

// raw returns the stream of a connection over raw TCP, whose TCP segments the case builds.
func (c *stream) raw() conformance.RawStream { return c.tcp.(conformance.RawStream) }

// hold queues frames without sending them, and returns the offset of each frame's end in the queue.
func (c *conn) hold(frames ...iwarp.Segment) (ends []int) {
	var b []byte
	for _, f := range frames {
		b = append(b, c.encode(f)...)
		ends = append(ends, len(b))
	}
	if err := c.raw().Hold(b); err != nil {
		rig.Abort(fmt.Errorf("hold octets: %w", err))
	}
	return ends
}

// release sends pieces, ranges [from, to) of the held octets, in a segment each, with a pause after
// each.
func (c *conn) release(pieces ...[2]int) {
	for _, p := range pieces {
		c.Note("send held octets %d to %d in a segment", p[0], p[1])
		if err := c.raw().SendHeld(p[0], p[1]); err != nil {
			c.Note("release: %v", err) // the device may have reset the stream
		}
		c.Sleep(segmentPause)
	}
}

// newSends returns Sends of the lengths.
func (c *conn) newSends(lengths ...int) (frames []iwarp.Segment) {
	for i, n := range lengths {
		frames = append(frames, iwarp.Send(c.nextSendMSN()+uint32(i), rig.Pattern(n, byte(i))))
	}
	return frames
}

// expectDelivered fails the case unless exactly Sends of the lengths are delivered, in order,
// into receives of room octets each.
func (c *conn) expectDelivered(room int, lengths ...int) {
	for i, n := range lengths {
		c.ExpectRecv(uint64(i+1), n)
		c.ExpectBytes(c.localMem, room*i, rig.Pattern(n, byte(i)))
	}
	c.sync()
	c.ExpectNoCompletion()
}

// randomPieces splits FPDUs that end at ends into segments of random lengths, reordered, some of
// them duplicate and some overlapping. No segment ends in pad or CRC, which some devices do not
// handle; other cases check that.
func randomPieces(c *conn, ends []int) (pieces [][2]int) {
	for at := 0; at < ends[len(ends)-1]; {
		end := min(ends[len(ends)-1], at+1+c.Rand.IntN(200))
		if i, _ := slices.BinarySearch(ends, end); end > ends[i]-7 { // in pad or CRC
			end = ends[i]
		}
		pieces = append(pieces, [2]int{max(0, at-c.Rand.IntN(30)), end})
		if c.Rand.IntN(4) == 0 {
			pieces = append(pieces, [2]int{at, end})
		}
		at = end
	}
	for i := range pieces {
		k := min(len(pieces)-1, i+c.Rand.IntN(4))
		pieces[i], pieces[k] = pieces[k], pieces[i]
	}
	return pieces
}

// isnBeforeWrap returns options with an initial sequence number for which the sequence number wraps
// after the SYN and this number of octets.
func isnBeforeWrap(octets uint32) conformance.TCPOptions {
	return conformance.TCPOptions{ISN: new(-octets - 1)}
}
