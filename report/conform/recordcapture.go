package conform

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// WriteCapture writes the packets of a case as a pcapng file, with times from begun on.
// Notes become comments of the next packet. Stream data is written as TCP segments with
// invented handshakes, sequence numbers and checksums, which Wireshark can follow.
//
// If all UDP checksums over IPv6 are 0, as in RoCEv2, they are filled in, since Wireshark
// rejects 0; the file has a comment about it.
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
				f = newFlow(r.Stream(e.Stream), speaksFirst(events[i:], e.Stream))
				flows[e.Stream] = f
				// Write the handshake before the first data.
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
		out := e.Kind == conformance.EventSent || e.Kind == conformance.EventSentFIN
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

// speaksFirst reports whether the peer sent the first data of a stream. In MPA that is the
// side that opened the connection.
func speaksFirst(events []conformance.Event, stream int) bool {
	i := slices.IndexFunc(events, func(e conformance.Event) bool {
		return e.Stream == stream && (e.Kind == conformance.EventSent || e.Kind == conformance.EventReceived)
	})
	return i < 0 || events[i].Kind == conformance.EventSent
}
