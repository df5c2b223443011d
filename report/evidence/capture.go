package evidence

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// WriteCapture writes the packets of a case as a pcapng file, with the times of the
// case behind begun. What the case noted is beside the packet that follows it. Byte
// streams get the TCP segments that they may have gone in: handshake, numbers and
// checksums are made up, so that Wireshark can follow them; their contents are not.
//
// If every UDP checksum over IPv6 is 0, as RoCEv2 has it and Wireshark does not,
// they are filled in, and the file says so.
func WriteCapture(w io.Writer, r *conformance.Record, begun time.Time) error {
	events, _ := inOrder(r)
	comment := ""
	fill := allUnsummed(events)
	if fill {
		comment = unsummed
	}
	cw, err := packet.NewCaptureWriter(w, comment)
	if err != nil {
		return err
	}
	epoch := time.Duration(begun.UnixNano())
	var notes []string
	flows := make(map[int]*flow)
	for i := range events {
		e := &events[i]
		if e.Kind == conformance.EventNote {
			notes = append(notes, e.Text)
			continue
		}
		packets := [][]byte{e.Data}
		if e.Stream > 0 {
			f := flows[e.Stream]
			if f == nil {
				f = newFlow(r.Ends(e.Stream), speaksFirst(events[i:], e.Stream))
				flows[e.Stream] = f
				// The connection was made before anything was said on it.
				for j, p := range f.handshake() {
					at := e.At - time.Duration(3-j)*100*time.Nanosecond
					if err := cw.Write(packet.Captured{At: epoch + max(0, at), Link: packet.LinkRaw, Data: p.data, Out: p.out}); err != nil {
						return err
					}
				}
			}
			packets = f.segments(e)
		}
		if fill && e.Stream == 0 {
			packets[0] = withChecksum(packets[0])
		}
		out := e.Kind == conformance.EventSent || e.Kind == conformance.EventSentEnd
		for _, p := range packets {
			c := packet.Captured{At: epoch + e.At, Link: packet.LinkRaw, Data: p, Out: out, Comment: strings.Join(notes, "\n")}
			if err := cw.Write(c); err != nil {
				return err
			}
			notes = nil
		}
	}
	return nil
}

// speaksFirst reports whether the judge did on a stream: who does is the one that
// made the connection, as MPA has it.
func speaksFirst(events []conformance.Event, stream int) bool {
	i := slices.IndexFunc(events, func(e conformance.Event) bool {
		return e.Stream == stream && (e.Kind == conformance.EventSent || e.Kind == conformance.EventCame)
	})
	return i < 0 || events[i].Kind == conformance.EventSent
}
