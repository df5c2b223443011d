package iwarp

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// rawConn is a connection whose segments the case makes itself.
type rawConn struct {
	*conn
	raw conformance.RawStream
}

// onRawTCP makes a case of a body that uses a connection over a TCP that is made by hand.
func onRawTCP(shape conformance.TCPOptions, s setup, body func(*rawConn)) func(*conformance.Bench) error {
	return withRawTCP(func(h *host, tcp conformance.RawTCP) {
		tcp.SetOptions(shape)
		body(h.connectRaw(s))
	})
}

// withRawTCP makes a case of a body that makes such connections itself.
func withRawTCP(body func(*host, conformance.RawTCP)) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		if b.RawTCP == nil {
			return fmt.Errorf("%w: the peer's TCP here is none that the case could make segments of", conformance.ErrBenchCannot)
		}
		tcp, err := b.RawTCP()
		if err != nil {
			return err
		}
		by := *b
		by.Streams = tcp
		return onHost(func(h *host) { body(h, tcp) })(&by)
	}
}

func (h *host) connectRaw(s setup) *rawConn {
	c := h.connect(s)
	segments, ok := c.tcp.(conformance.RawStream)
	if !ok {
		rig.Abort(fmt.Errorf("a TCP by hand whose streams are %T", c.tcp))
	}
	return &rawConn{c, segments}
}

// hold keeps the octets of frames back, and returns where each ends.
func (c *rawConn) hold(frames ...iwarp.Frame) (ends []int) {
	var b []byte
	for _, f := range frames {
		b = append(b, c.encode(f)...)
		ends = append(ends, len(b))
	}
	if err := c.raw.Hold(b); err != nil {
		rig.Abort(fmt.Errorf("hold octets back: %w", err))
	}
	return ends
}

// release sends pieces of what is held back, a segment each, and gives the device time to
// nextFPDUs each by itself.
func (c *rawConn) release(pieces ...[2]int) {
	for _, p := range pieces {
		c.Note("octets %d to %d of what is held back, in a segment", p[0], p[1])
		if err := c.raw.SendHeld(p[0], p[1]); err != nil {
			c.Note("release: %v", err) // the device may have broken the stream
		}
		c.Sleep(segmentPause)
	}
}

// releaseWithFIN sends the rest of what is held back from an octet on, and FIN in the same
// segment.
func (c *rawConn) releaseWithFIN(from int) {
	c.Note("octets from %d on of what is held back, with FIN, in a segment", from)
	if err := c.raw.SendHeldFIN(from); err != nil {
		rig.Abort(fmt.Errorf("end the peer's side: %w", err))
	}
}

// newSends are Sends of these lengths.
func (c *rawConn) newSends(lengths ...int) (frames []iwarp.Frame) {
	for i, n := range lengths {
		frames = append(frames, iwarp.Send(c.nextSendMSN()+uint32(i), rig.Pattern(n, byte(i))))
	}
	return frames
}

// expectDelivered ends the case unless Sends of these lengths are delivered, in order, into
// receives of so many octets each, and nothing else is.
func (c *rawConn) expectDelivered(room int, lengths ...int) {
	for i, n := range lengths {
		c.ExpectRecv(uint64(i+1), n)
		c.ExpectBytes(c.localMem, room*i, rig.Pattern(n, byte(i)))
	}
	c.sync()
	c.ExpectNoCompletion()
}

// randomPieces cuts FPDUs that end at these places into pieces as networks do that cut and join
// segments, lose some and deliver others late: of random lengths, each a few places from
// its own, some of them twice and some beginning before the one before has ended. None ends
// deframer pad or CRC: there are devices that lose their way there, which other cases tell.
func randomPieces(c *rawConn, ends []int) (pieces [][2]int) {
	for at := 0; at < ends[len(ends)-1]; {
		end := min(ends[len(ends)-1], at+1+c.Rand.IntN(200))
		if i, _ := slices.BinarySearch(ends, end); end > ends[i]-7 {
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

// isnBeforeWrap is a first sequence number that leaves so many octets up to where the numbers
// begin anew.
func isnBeforeWrap(octets uint32) conformance.TCPOptions {
	return conformance.TCPOptions{ISN: new(-octets - 1)}
}
