package capture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// Initial sequence numbers; those of alice wrap.
var seqA, seqB uint32 = 0xFFFFFF00, 77

// oneFPDUPerSegment is a special value of mss.
const oneFPDUPerSegment = 0

// connection returns the packets of a connection on which alice sends messages of the
// given lengths, in segments of at most mss octets.
func connection(framing iwarp.Framing, lengths []int, mss int) (frames []frame, sent [][]byte) {
	req := (&iwarp.StartFrame{CRC: framing.CRC, Revision: 1}).Append(nil)
	rep := (&iwarp.StartFrame{Reply: true, CRC: framing.CRC, Markers: framing.Markers, Revision: 1}).Append(nil)
	frames = []frame{
		tcp(true, seqA-1, 0, "S", nil), tcp(false, seqB-1, seqA, "S", nil),
		tcp(true, seqA, seqB, "", req), tcp(false, seqB, seqA+uint32(len(req)), "", rep),
	}
	framer := iwarp.NewFramer(framing)
	var b []byte
	var cuts []int
	for i, n := range lengths {
		u := send(iwarp.MSN(i+1), n)
		sent = append(sent, u)
		b = framer.Append(b, u)
		if mss == oneFPDUPerSegment {
			cuts = append(cuts, len(b))
		}
	}
	for at := mss; mss != oneFPDUPerSegment && at < len(b)+mss; at += mss {
		cuts = append(cuts, min(at, len(b)))
	}
	at := 0
	for _, end := range cuts {
		frames = append(frames, tcp(true, seqA+uint32(len(req)+at), seqB+uint32(len(rep)), "", b[at:end]))
		at = end
	}
	return frames, sent
}

func writeFile(t *testing.T, path string, frames []frame) {
	t.Helper()
	must.Do(t, os.WriteFile(path, pcapOf(t, layers.LinkTypeRaw, frames...), 0o600))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return b
}

// ops returns the PDUs of all packets, in order.
func ops(all []decoded) (list []string) {
	for _, one := range all {
		list = append(list, one.ops...)
	}
	return list
}

func sends(n int, lengths []int) (want []string) {
	for i := range n {
		want = append(want, fmt.Sprintf("Send: MSN %d %d B", i+1, lengths[i]))
	}
	return want
}

func marksOf(all []decoded) map[MarkKind]int {
	n := map[MarkKind]int{}
	for _, one := range all {
		for _, k := range one.marks {
			n[k]++
		}
	}
	return n
}

var lengths = []int{1, 100, 2000, 16, 484, 488, 3, 5000, 0, 77}

func TestStreamsAreReassembledForAnySegmentation(t *testing.T) {
	for _, framing := range []iwarp.Framing{{}, {CRC: true}, {Markers: true}, {Markers: true, CRC: true}} {
		for _, mss := range []int{1, 3, 100, 536, 1448, 9000} {
			frames, _ := connection(framing, lengths, mss)
			all := decode(t, frames...)
			want := append([]string{"MPA Request: ", "MPA Reply: "}, sends(len(lengths), lengths)...)
			got := ops(all)
			if len(got) != len(want) {
				t.Fatalf("%+v, MSS %d: %d messages, want %d: %v", framing, mss, len(got), len(want), got)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("%+v, MSS %d: message %d is %q, want %q", framing, mss, i, got[i], want[i])
				}
			}
			if len(marksOf(all)) > 0 {
				t.Errorf("%+v, MSS %d: marked: %v", framing, mss, marksOf(all))
			}
		}
	}
}

func TestReorderingAndRetransmissionYieldEachPDUOnce(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		framing := iwarp.Framing{Markers: seed%2 == 0, CRC: true}
		frames, _ := connection(framing, lengths, 200+r.IntN(800))
		head, body := frames[:4], slices.Clone(frames[4:])
		for range r.IntN(4) { // duplicate some
			body = append(body, body[r.IntN(len(body))])
		}
		for i := range body { // reorder
			j := min(len(body)-1, i+r.IntN(4))
			body[i], body[j] = body[j], body[i]
		}
		all := decode(t, append(slices.Clone(head), body...)...)
		if got, want := ops(all)[2:], sends(len(lengths), lengths); !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n got %v\nwant %v", seed, got, want)
		}
		if n := marksOf(all); n[MarkMissingData] > 0 || n[MarkMalformed] > 0 || n[MarkChecksum] > 0 {
			t.Fatalf("seed %d: marks %v", seed, n)
		}
	}
}

func TestTCPMarksRetransmissionsGapsAndReordering(t *testing.T) {
	frames, _ := connection(iwarp.Framing{CRC: true}, []int{82, 82, 82, 82}, oneFPDUPerSegment)
	f := frames[4:]
	for name, tc := range map[string]struct {
		order []frame
		want  [][]MarkKind
	}{
		"retransmitted":        {[]frame{f[0], f[0], f[1]}, [][]MarkKind{nil, {MarkRetransmission}, nil}},
		"out of order":         {[]frame{f[0], f[2], f[1], f[3]}, [][]MarkKind{nil, {MarkGap}, {MarkOutOfOrder}, nil}},
		"early, retransmitted": {[]frame{f[1], f[1], f[0]}, [][]MarkKind{{MarkGap}, {MarkRetransmission}, {MarkOutOfOrder}}},
		"reversed":             {[]frame{f[0], f[3], f[2], f[1]}, [][]MarkKind{nil, {MarkGap}, {MarkOutOfOrder}, {MarkOutOfOrder}}},
	} {
		all := decode(t, append(slices.Clone(frames[:4]), tc.order...)...)[4:]
		for i, want := range tc.want {
			if !slices.Equal(all[i].marks, want) {
				t.Errorf("%s: packet %d is marked %v, want %v", name, i, all[i].marks, want)
			}
		}
	}
}

// If the receiver acknowledges octets that were not captured, decoding resumes at the
// next segment that starts with an FPDU.
func TestFPDUsAreResyncedAfterMissingOctets(t *testing.T) {
	for _, framing := range []iwarp.Framing{{}, {CRC: true}, {CRC: true, Markers: true}} {
		frames, _ := connection(framing, []int{90, 90, 90, 90, 90}, 1<<20)
		req := 20
		whole := frames[4].data[60:] // after the headers of IPv6 and TCP
		framer := iwarp.NewFramer(framing)
		var at []int
		for i := range 5 {
			at = append(at, int(framer.At()))
			framer.Append(nil, send(iwarp.MSN(i+1), 90))
		}
		part := func(i int) frame {
			end := len(whole)
			if i+1 < len(at) {
				end = at[i+1]
			}
			return tcp(true, seqA+uint32(req+at[i]), seqB+20, "", whole[at[i]:end])
		}
		ack := tcp(false, seqB+20, seqA+uint32(req+at[3]), "", nil)
		all := decode(t, append(slices.Clone(frames[:4]), part(0), part(2), ack, part(3), part(4))...)
		got := ops(all)[2:]
		want := []string{"Send: MSN 1 90 B", "Send: MSN 3 90 B", "Send: MSN 4 90 B", "Send: MSN 5 90 B"}
		if !slices.Equal(got, want) || marksOf(all)[MarkMissingData] == 0 {
			t.Errorf("%+v: %v, marks %v; want %v and MarkMissingData", framing, got, marksOf(all), want)
		}
	}
}

func TestFPDUsAreFoundWithoutConnectionStart(t *testing.T) {
	for _, framing := range []iwarp.Framing{{}, {CRC: true}} {
		frames, _ := connection(framing, []int{82, 82, 82}, oneFPDUPerSegment)
		all := decode(t, frames[4:]...)
		if got, want := ops(all), sends(3, []int{82, 82, 82}); !slices.Equal(got, want) || marksOf(all)[MarkMissingData] != 1 {
			t.Errorf("%+v: %v, marks %v; want %v and MarkMissingData once", framing, got, marksOf(all), want)
		}
	}
	// Segments that do not start with an FPDU, and other protocols, are plain TCP.
	frames, _ := connection(iwarp.Framing{CRC: true}, []int{1000, 1000}, 100)
	for _, f := range append(frames[5:9], tcp(true, 1, 1, "", []byte("GET / HTTP/1.1\r\n"))) {
		if one := decode(t, f)[0]; one.protocol != "TCP" || len(one.ops) != 0 {
			t.Errorf("decoded as iWARP: %+v", one)
		}
	}
	// The MPA key identifies the start even without the SYN.
	frames, _ = connection(iwarp.Framing{CRC: true}, []int{82}, oneFPDUPerSegment)
	if got := ops(decode(t, frames[2:]...)); len(got) != 3 {
		t.Errorf("without SYN: %v", got)
	}
}

// With a snap length of 100 octets, headers are decoded and the stream stays in sync.
func TestTruncatedSegmentsAreDecodedAndStayInSync(t *testing.T) {
	frames, _ := connection(iwarp.Framing{CRC: true}, []int{1000, 1000, 1000}, oneFPDUPerSegment)
	for i := range frames {
		frames[i].length = len(frames[i].data)
		frames[i].data = frames[i].data[:min(len(frames[i].data), 100)]
	}
	all := decode(t, frames...)
	want := []string{"Send: MSN 1 1000 B truncated", "Send: MSN 2 1000 B truncated", "Send: MSN 3 1000 B truncated"}
	if got := ops(all)[2:]; !slices.Equal(got, want) || len(marksOf(all)) > 0 {
		t.Errorf("%v, marks %v; want %v", got, marksOf(all), want)
	}
}

func TestIWARPMarksCRCTerminateAndReject(t *testing.T) {
	frames, _ := connection(iwarp.Framing{CRC: true}, []int{82, 82}, oneFPDUPerSegment)
	frames[4].data[60+30] ^= 1
	all := decode(t, frames...)
	if !slices.Equal(all[4].marks, []MarkKind{MarkChecksum}) || len(all[5].marks) != 0 {
		t.Errorf("flipped bit: %v and %v", all[4].marks, all[5].marks)
	}

	term := iwarp.Segment{
		Header:    iwarp.Header{Control: iwarp.NewControl(iwarp.OpTerminate, true), Untagged: iwarp.Untagged{QN: 2, MSN: 1}},
		Terminate: iwarp.Terminate{Error: iwarp.TermMPACRC, Order: iwarp.OrderSiw},
	}
	framer := iwarp.NewFramer(iwarp.Framing{CRC: true})
	frames = append(frames[:4], tcp(false, seqB+20, seqA+20, "", framer.Append(nil, term.Append(nil))))
	all = decode(t, frames...)
	if got := all[4]; !slices.Equal(got.marks, []MarkKind{MarkNak}) || got.ops[0] != "Terminate: MSN 1 2/0/02 MPA: CRC error (bits in the order of siw)" {
		t.Errorf("Terminate: %+v", got)
	}

	reject := (&iwarp.StartFrame{Reply: true, Reject: true, Revision: 1}).Append(nil)
	all = decode(t, append(frames[:3:3], tcp(false, seqB, seqA+20, "", reject), tcp(false, seqB+20, 0, "R", nil))...)
	if !slices.Equal(all[3].marks, []MarkKind{MarkRejected}) || !slices.Equal(all[4].marks, []MarkKind{MarkRejected}) {
		t.Errorf("rejects: %v and %v", all[3].marks, all[4].marks)
	}
}

func TestReassemblyQueueIsBounded(t *testing.T) {
	frames, _ := connection(iwarp.Framing{}, nil, 1000)
	big := make([]byte, 60000)
	for i := range 600 {
		frames = append(frames, tcp(true, seqA+1000+uint32(i)*60001, seqB+20, "", big)) // each leaves a gap
	}
	s := must.Get(Open(strings.NewReader(string(pcapOf(t, layers.LinkTypeRaw, frames...)))))(t)
	most := 0
	for {
		if _, err := s.Next(); err != nil {
			break
		}
		most = max(most, s.outOfOrderLen)
	}
	if most == 0 || most > maxOutOfOrderOctets+len(big) {
		t.Errorf("%d octets were queued, the bound is %d", most, maxOutOfOrderOctets)
	}
}
