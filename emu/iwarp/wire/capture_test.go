package wire

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// Parsing streams between two kernels and appending the parsed frames gives the same octets.
func TestCapturedFPDUsRoundTrip(t *testing.T) {
	paths := must.Get(filepath.Glob("testdata/*.pcap"))(t)
	files, count, stale, connections := 0, map[Opcode]int{}, 0, 0
	for _, path := range paths {
		files++
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			for _, c := range testutil.ReadConversations(t, path) {
				connections++
				var request, reply StartFrame
				first, err := request.Parse(c.Initiator)
				if err != nil || request.Reply {
					t.Fatalf("request: %v, %+v", err, request)
				}
				second, err := reply.Parse(c.Responder)
				if err != nil || !reply.Reply {
					t.Fatalf("reply: %v, %+v", err, reply)
				}
				if wantCRC := strings.HasPrefix(name, "siwcrc"); request.CRC != wantCRC || reply.CRC != wantCRC {
					t.Errorf("CRC requested: %v and %v, want %v", request.CRC, reply.CRC, wantCRC)
				}
				if _, _, ok := request.Split(); !ok {
					t.Errorf("no enhanced data in %+v", request)
				}
				if got := append(request.Append(nil), first...); !bytes.Equal(got, c.Initiator) {
					t.Error("request differs after Parse and Append")
				}
				if got := append(reply.Append(nil), second...); !bytes.Equal(got, c.Responder) {
					t.Error("reply differs after Parse and Append")
				}
				stale += reframe(t, FramingTo(&reply, &request), first, count)
				stale += reframe(t, FramingTo(&request, &reply), second, count)
			}
		})
	}
	want := map[Opcode]int{OpWrite: 48, OpReadRequest: 22, OpReadResponse: 44, OpSend: 240} // tshark counts the same
	if fmt.Sprint(count) != fmt.Sprint(want) || stale != 12 || files != 10 || connections != 16 {
		t.Errorf("%d files, %d connections, FPDUs %v, %d of them with stale pads", files, connections, count, stale)
	}
}

// reframe deframes one direction in pieces of 333 octets, frames each FPDU again from its parsed
// headers, and returns the number of FPDUs with a pad that is not zero.
func reframe(t *testing.T, framing Framing, b []byte, count map[Opcode]int) (stale int) {
	t.Helper()
	d, framer := NewDeframer(framing), NewFramer(framing)
	var out []byte
	for rest := b; len(rest) > 0; {
		n := min(333, len(rest))
		for p := rest[:n]; len(p) > 0; {
			f, r, ok := d.Next(p)
			p = r
			if !ok {
				break
			}
			if framing.CRC != (f.CRCStatus == CRCGood) {
				t.Errorf("FPDU at %d: CRC %v", f.Offset, f.CRCStatus)
			}
			if f.Pad != ([3]byte{}) {
				stale++
			}
			var s Segment
			if err := s.Parse(f.ULPDU); err != nil {
				t.Fatalf("FPDU at %d: %v", f.Offset, err)
			}
			if !s.Control.Consistent() || s.Control.DDPVersion != DDPVersion || s.Control.RDMAPVersion != RDMAPVersion {
				t.Errorf("FPDU at %d: %+v", f.Offset, s.Control)
			}
			count[s.Control.Opcode]++
			f.ULPDU = s.Append(nil)
			out = framer.AppendFPDU(out, &f)
		}
		rest = rest[n:]
	}
	if !bytes.Equal(out, b) || d.Pending() != 0 {
		t.Errorf("%d octets framed again as %d, %d pending", len(b), len(out), d.Pending())
	}
	return stale
}
