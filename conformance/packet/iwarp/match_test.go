package iwarp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// received returns a frame as a peer receives it, without markers and with CRC.
func received(t *testing.T, f Segment) ReceivedFPDU {
	t.Helper()
	var d Deframer
	d.Feed((&Framer{CRC: true}).Append(nil, f))
	got, ok := d.Next()
	if !ok || len(d.Pending()) != 0 {
		t.Fatalf("%v is not one FPDU", f)
	}
	return got
}

// oddOf lists the unusual values of an FPDU and its segment.
func oddOf(g ReceivedFPDU) []string { return append(g.oddFrame(), g.Oddities()...) }

// strict returns a segment as an expectation of every field.
func strict(s Segment) Segment { return ParseSegment(s.Append(nil)) }

// Each case changes one field of a base frame. Strict expectations tell the two frames apart.
func TestEveryFieldIsCompared(t *testing.T) {
	send, write := Send(7, []byte("abcd")), Write(0x11, 0x2200, []byte("abcd"))
	read := ReadRequest(3, At(1, 2), 4, At(5, 6))
	add := FetchAdd(2, 9, At(0x10, 0x20), 5)
	term := Terminate(DDPTaggedBounds).About(write)
	response, imm := AtomicResponse(1, 2, 3), Immediate(1, 2)
	for _, tc := range []struct {
		base, changed Segment
		diff          string
	}{
		{send, send.Last(false), "L: want true, got false"},
		{send, send.DDPReserved(5), "DDP reserved bits: want 0x0, got 0x5"},
		{send, send.DV(2), "DV: want 1, got 2"},
		{send, send.RV(0), "RV: want 1, got 0"},
		{send, send.RDMAPReserved(3), "RDMAP reserved bits: want 0x0, got 0x3"},
		{send, send.Opcode(OpSendSE), "opcode: want SEND, got SEND SE"},
		{send, send.QN(1), "QN: want 0, got 1"},
		{send, send.MSN(8), "MSN: want 7, got 8"},
		{send, send.MO(4), "MO: want 0, got 4"},
		{send, send.InvalidateSTag(0xbad), "Invalidate STag: want 0x0, got 0xbad"},
		{send, send.WithPayload([]byte("abxd")), "payload: want 6364 at byte 2, got 7864 there (1 of 4 bytes differ)"},
		{send, send.WithPayload([]byte("abc")), "payload: want 4 B, got 3 B"},
		{send, send.WithPayload(nil), "payload: want 4 B, got 0 B"},
		{write, write.STag(0x12), "STag: want 0x11, got 0x12"},
		{write, write.TO(0x2201), "TO: want 0x2200, got 0x2201"},
		{read, read.EditRead(func(h *ReadRequestHeader) { h.SinkSTag = new(uint32(9)) }), "SinkSTag: want 0x1, got 0x9"},
		{read, read.EditRead(func(h *ReadRequestHeader) { h.SinkTO = new(uint64(9)) }), "SinkTO: want 0x2, got 0x9"},
		{read, read.EditRead(func(h *ReadRequestHeader) { h.Size = new(uint32(9)) }), "Size: want 4, got 9"},
		{read, read.EditRead(func(h *ReadRequestHeader) { h.SrcSTag = new(uint32(9)) }), "SrcSTag: want 0x5, got 0x9"},
		{read, read.EditRead(func(h *ReadRequestHeader) { h.SrcTO = new(uint64(9)) }), "SrcTO: want 0x6, got 0x9"},
		{read, read.WithPayload([]byte{1}), "payload: want 0 B, got 1 B"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.Operation = new(uint8(1)) }), "Operation: want 0, got 1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.Reserved = new(uint32(1)) }), "Reserved: want 0x0, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.ID = new(uint32(1)) }), "ID: want 0x9, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.STag = new(uint32(1)) }), "STag: want 0x10, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.TO = new(uint64(1)) }), "TO: want 0x20, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.Data = new(uint64(1)) }), "Data: want 0x5, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.Mask = new(uint64(1)) }), "Mask: want 0x0, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.Compare = new(uint64(1)) }), "Compare: want 0x0, got 0x1"},
		{add, add.EditAtomic(func(h *AtomicRequestHeader) { h.CompareMask = new(uint64(1)) }), "CompareMask: want 0xffffffffffffffff, got 0x1"},
		{term, term.EditTerminate(func(h *TerminateHeader) { h.Cause = new(MPACRC) }), "Cause: want ddp/tagged base or bounds, got mpa crc"},
		{term, term.EditTerminate(func(h *TerminateHeader) { h.LengthValid = new(false) }), "LengthValid: want true, got false"},
		{term, term.EditTerminate(func(h *TerminateHeader) { h.Reserved = new(uint16(1)) }), "Reserved: want 0x0, got 0x1"},
		{term, term.EditTerminate(func(h *TerminateHeader) { h.SegmentLength = new(uint16(4)) }), "SegmentLength: want 18, got 4"},
		{term, term.About(write.TO(0)), "quoted DDP header: want 2200 at byte 12, got 0000 there (1 of 14 bytes differ)"},
		{Terminate(RDMAPBounds).About(read), Terminate(RDMAPBounds).About(read.EditRead(func(h *ReadRequestHeader) { h.Size = new(uint32(5)) })), "quoted RDMAP header: want 0400000005000000 at byte 15, got 0500000005000000 there (1 of 28 bytes differ)"},
		{response, AtomicResponse(1, 2, 4), "Original: want 0x3, got 0x4"},
		{response, AtomicResponse(1, 3, 3), "ID: want 0x2, got 0x3"},
		{imm, Immediate(1, 3), "Value: want 0x2, got 0x3"},
	} {
		got, base := received(t, tc.changed), received(t, tc.base)
		if d := Diff(strict(tc.base), got); d.String() != tc.diff {
			t.Errorf("%v\nand %v\n%q, want %q", tc.base, tc.changed, d, tc.diff)
		}
		if len(Diff(strict(tc.changed), base)) == 0 {
			t.Errorf("%v\nmatches %v", tc.base, tc.changed)
		}
		if d := Diff(strict(tc.base), base); len(d) != 0 {
			t.Errorf("%v\ndiffers from itself: %v", tc.base, d)
		}
	}
}

func TestUnsetFieldsAreNotCompared(t *testing.T) {
	odd := received(t, Send(1, []byte("abcd")).Last(false).DDPReserved(0xf).RDMAPReserved(2).MO(9).DV(3).BadCRC())
	for _, want := range []Segment{
		Any(), Op(OpSend), Op(OpSend).MSN(1), Send(1, []byte("abcd")), Op(OpSend).Length(4), Any().Last(false), Any().BadCRC(),
	} {
		if d := Diff(want, odd); len(d) != 0 {
			t.Errorf("expected %v: %v", want, d)
		}
	}
	for _, want := range []Segment{
		Op(OpSendSE), Op(OpSend).MSN(2), Send(1, []byte("abcx")), Op(OpSend).Length(5), Send(1, nil), Any().Last(true), Any().CRC(7), Any().Pad(1), Any().ULPDULength(1),
		Op(OpWrite), Any().STag(0), ReadRequest(1, At(0, 0), 0, At(0, 0)), Terminate(MPACRC), FetchAdd(1, 0, At(0, 0), 0), AtomicResponse(1, 0, 0), Immediate(1, 0), ParseSegment([]byte{1}),
	} {
		if len(Diff(want, odd)) == 0 {
			t.Errorf("expected %v: %v matches", want, odd)
		}
	}
}

// Fields that a strict expectation of a valid segment implies are compared on their own, too.
func TestSingleFieldsAreCompared(t *testing.T) {
	other := Any()
	other.OtherHeader = []byte{1}
	for want, s := range map[string]Segment{
		"T: want true, got false":     Any().Tagged(true),
		"CRC: want wrong, got right":  Any().BadCRC(),
		"header: want 1 B, got 0 B":   other,
		"ULPDU_Length: want 7, got 2": Any().ULPDULength(7),
	} {
		got := received(t, Send(1, nil))
		got.MPA.Length = new(uint16(2))
		if d := Diff(s, got); d.String() != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
}

func TestTerminateExpectations(t *testing.T) {
	wrong := Write(0xabc, 0x10, make([]byte, 100))
	full := received(t, Terminate(DDPTaggedBounds).About(wrong))
	bare := received(t, Terminate(DDPTaggedBounds))
	// siw sends the length of the payload instead of that of the segment.
	siwLength := received(t, Terminate(DDPTaggedBounds).About(wrong).EditTerminate(func(h *TerminateHeader) { h.SegmentLength = new(uint16(100)) }))
	want := Terminate(DDPTaggedBounds)
	for _, tc := range []struct {
		want                  Segment
		full, bare, siwLength bool
	}{
		{want, true, true, true},
		{want.About(wrong), true, false, false},
		{want.Quoting(wrong), true, false, true},
		{want.QuotingNothing(), false, true, false},
		{Terminate(DDPTaggedTOWrap), false, false, false},
		{want.About(wrong.TO(0x11)), false, false, false},
	} {
		if f, b, s := len(Diff(tc.want, full)) == 0, len(Diff(tc.want, bare)) == 0, len(Diff(tc.want, siwLength)) == 0; f != tc.full || b != tc.bare || s != tc.siwLength {
			t.Errorf("%v: full %t, bare %t, siw's length %t", tc.want, f, b, s)
		}
	}
	read := ReadRequest(4, At(1, 2), 3, At(4, 5))
	got := received(t, Terminate(RDMAPBounds).About(read))
	if wrong, ok := got.Terminate.QuotedSegment(); !ok || wrong.String() != read.String() {
		t.Errorf("about %v, want %v", wrong, read)
	}
}

func TestOdditiesAreNamed(t *testing.T) {
	send := Send(1, []byte("abc"))
	for _, tc := range []struct {
		frame Segment
		odd   string
	}{
		{send, ""},
		{send.Pad(9), "pad 09"},
		{send.BadCRC(), "CRC "},
		{send.DV(0), "DV: 0 instead of 1"},
		{send.RV(2), "RV: 2 instead of 1"},
		{send.DDPReserved(1), "reserved bits of DDP: 1 instead of 0"},
		{send.RDMAPReserved(1), "reserved bits of RDMAP: 1 instead of 0"},
		{send.QN(3), "QN is 3, for SEND it is 0"},
		{send.InvalidateSTag(1), "Invalidate STag is 0x1, for SEND it is 0"},
		{SendInvalidate(1, 1, nil), ""},
		{send.Opcode(13), "opcode 13 is not assigned"},
		{Write(1, 2, make([]byte, 8)).Tagged(false), "T is false, for WRITE it is true"},
		{send.Cut(17), "a segment of 17 octets is too short for its header"},
		{send.Cut(0), "a segment of 0 octets is too short for its header"},
		{ReadRequest(1, At(1, 1), 1, At(1, 1)).Last(false), "L is false, READ REQUEST is one segment"},
		{ReadRequest(1, At(1, 1), 1, At(1, 1)).MO(4), "MO is 4, READ REQUEST is one segment"},
		{ReadRequest(1, At(1, 1), 1, At(1, 1)).WithPayload([]byte{1}), "1 octets behind the header of READ REQUEST"},
		{ReadRequest(1, At(1, 1), 1, At(1, 1)).Cut(40), "the header of READ REQUEST is 28 octets, of which there are 22"},
		{Immediate(1, 1).Cut(25), "the header of IMMEDIATE is 8 octets, of which there are 7"},
		{FetchAdd(1, 1, At(1, 1), 1).EditAtomic(func(h *AtomicRequestHeader) { h.Operation = new(uint8(1)) }), "atomic operation 1 is not assigned"},
		{FetchAdd(1, 1, At(1, 1), 1).EditAtomic(func(h *AtomicRequestHeader) { h.Reserved = new(uint32(1)) }), "reserved bits of the atomic: 1 instead of 0"},
		{Terminate(MPACRC).EditTerminate(func(h *TerminateHeader) { h.Reserved = new(uint16(1)) }), "reserved bits of TERMINATE: 1 instead of 0"},
		{Send(1, make([]byte, maxULPDU-untaggedLen)), ""},
		{Send(1, make([]byte, maxULPDU-untaggedLen+1)), "ULPDU of 64769 octets, the most there can be is 64768"},
		{Terminate(MPACRC).MSN(2), "MSN of TERMINATE: 2 instead of 1"},
		{Terminate(Cause(0x2103)), "cause 2/1/03 is in no list"},
		{Terminate(MPACRC).EditTerminate(func(h *TerminateHeader) { h.HasRDMAP = new(true) }), "R is set and no RDMAP header is there"},
		{Terminate(MPACRC).EditTerminate(func(h *TerminateHeader) { h.LengthValid = new(true) }), "M is set and no length is there"},
		{Terminate(MPACRC).EditTerminate(func(h *TerminateHeader) { h.HasDDP = new(true) }), "D is set and no DDP header is there"},
	} {
		got := strings.Join(oddOf(received(t, tc.frame)), "; ")
		if got != tc.odd && (tc.odd == "" || !strings.HasPrefix(got, tc.odd)) {
			t.Errorf("%v: %q, want %q", tc.frame, got, tc.odd)
		}
	}
}

func TestSegmentsOfAMessage(t *testing.T) {
	data := make([]byte, 2500)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, tc := range []struct {
		message Segment
		want    string
	}{
		{Send(3, data), "[SEND msn 3 1424 B more SEND msn 3 mo 1424 1076 B last]"},
		{Write(1, 0x1000, data), "[WRITE stag 0x1 to 0x1000 1428 B more WRITE stag 0x1 to 0x1594 1072 B last]"},
		{Send(1, nil), "[SEND msn 1 0 B last]"},
		{ReadRequest(1, At(0, 0), 4, At(0, 0)), "[READ REQUEST msn 1 4 B from 0x0+0x0 to 0x0+0x0]"},
	} {
		var got []ReceivedFPDU
		var all []byte
		for _, s := range tc.message.Segments(1442) {
			g := received(t, s)
			if n := *g.MPA.Length; n > 1442 {
				t.Errorf("%v has %d octets", g, n)
			}
			got, all = append(got, g), append(all, g.Payload...)
		}
		if s := fmt.Sprint(got); s != tc.want {
			t.Errorf("%s, want %s", s, tc.want)
		}
		if !bytes.Equal(all, tc.message.Payload) {
			t.Errorf("%v: the segments have another payload than the message", tc.message)
		}
	}
}

// Fields of one of the two DDP headers decide which one is sent.
func TestFieldsDecideWhichHeaderIsSent(t *testing.T) {
	for _, tc := range []struct {
		s    Segment
		want bool
	}{
		{Op(OpSend), false},
		{Op(OpWrite), true},
		{Op(OpSend).Tagged(true), true},
		{Op(OpWrite).Tagged(false), false},
		{Op(OpSend).STag(1).Tagged(false), true},
		{Op(OpSend).TO(1), true},
		{Op(OpWrite).QN(1).Tagged(true), false},
		{Op(OpWrite).MSN(1), false},
		{Op(OpWrite).MO(1), false},
		{Op(OpWrite).InvalidateSTag(1), false},
	} {
		if tc.s.IsTagged() != tc.want {
			t.Errorf("%v: tagged %v, want %v", tc.s, !tc.want, tc.want)
		}
	}
}

func TestPayloadIsCutOrFilled(t *testing.T) {
	header := Send(1, nil).Append(nil)
	for n, want := range map[int]string{0: "", 1: "a", 2: "ab", 4: "ab\x00\x00", -1: ""} {
		s := Send(1, []byte("ab"))
		s.PayloadLen = &n
		if got := s.Append(nil); string(got[len(header):]) != want {
			t.Errorf("length %d: %q, want %q", n, got[len(header):], want)
		}
	}
	if h := Terminate(MPACRC).About(Send(1, nil).Cut(0)).Terminate; len(h.DDPHeader) != 0 || *h.SegmentLength != 0 {
		t.Errorf("a segment without octets is quoted as %x of %d", h.DDPHeader, *h.SegmentLength)
	}
}

func TestTaggedChangesOnlyTheTBit(t *testing.T) {
	plain, odd := Send(1, []byte("abcd")).Append(nil), Send(1, []byte("abcd")).Tagged(true).Append(nil)
	plain[0] |= 0x80
	if !bytes.Equal(plain, odd) {
		t.Errorf("%x, want %x", odd, plain)
	}
}

func TestModifiersCopy(t *testing.T) {
	base := ReadRequest(1, At(1, 2), 3, At(4, 5))
	before := base.Append(nil)
	base.EditRead(func(h *ReadRequestHeader) { h.Size = new(uint32(99)) }).MSN(7).Last(false)
	term := Terminate(MPACRC)
	term.About(base)
	if !bytes.Equal(before, base.Append(nil)) || term.Terminate.DDPHeader != nil {
		t.Error("a modifier changed its receiver")
	}
}

func TestSegmentsInWords(t *testing.T) {
	for want, s := range map[string]Segment{
		"SEND INVALIDATE msn 2 invalidate 0xbad 1 B":                       SendInvalidate(2, 0xbad, []byte("x")),
		"READ REQUEST msn 1 4 B from 0x1+0x2 to 0x3+0x4 1 B":               ReadRequest(1, At(3, 4), 4, At(1, 2)).WithPayload([]byte("x")),
		"ATOMIC REQUEST msn 1 id 0x2 add 0x5 at 0x3+0x4":                   FetchAdd(1, 2, At(3, 4), 5),
		"SEND msn 1 mo 4 2 B more":                                         Send(1, []byte("ab")).MO(4).Last(false),
		"SEND msn 1 0 B dv 0x2 rv 0x0 ddp-reserved 0x5 rdmap-reserved 0x3": Send(1, nil).DV(2).RV(0).DDPReserved(5).RDMAPReserved(3),
		"WRITE stag 0x1 to 0x2 0 B T=false":                                Write(1, 2, nil).Tagged(false),
		"IMMEDIATE msn 1 0x2":                                              Immediate(1, 2),
		"TERMINATE mpa crc about SEND msn 1 last":                          Terminate(MPACRC).About(Send(1, nil)),
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A Terminate may say only the length of the wrong segment.
func TestTerminateWithLengthOnly(t *testing.T) {
	got := received(t, Terminate(MPACRC).EditTerminate(func(h *TerminateHeader) { h.SegmentLength = new(uint16(77)) })).Terminate
	if got.SegmentLength == nil || *got.SegmentLength != 77 || !*got.LengthValid || *got.HasDDP {
		t.Errorf("%+v, want a length of 77", got)
	}
}

// siw puts the header bits at the low end, and exchanges layer and type.
func TestSiwBitOrder(t *testing.T) {
	for _, tc := range []struct {
		ctrl                  [4]byte
		beforeStart, afterEnd bool // is in siw's order before and after the end of start-up
	}{
		{[4]byte{0x21}, true, true},
		{[4]byte{0x21, 0, 0x40}, false, false},
		{[4]byte{0x11, 0, 0x20, 0x07}, false, false},
		{[4]byte{0x11, 0, 0x01}, true, true},
		{[4]byte{0x02, 1}, false, false},
		{[4]byte{0x02, 2}, true, true},
		{[4]byte{0x02, 4}, true, true},
		{[4]byte{0x02, 5}, false, false},
		{[4]byte{0x02, 6}, true, false},
		{[4]byte{0x02, 7}, true, false},
		{[4]byte{0x02, 8}, false, false},
		{[4]byte{0x20, 4}, false, false},
		{[4]byte{0x20, 5}, false, true},
		{[4]byte{0x20, 6}, false, true},
		{[4]byte{0x20, 7}, false, false},
		{[4]byte{0x20, 8}, true, true},
		{[4]byte{0x20, 0xff}, true, true},
		{[4]byte{0x10, 0}, false, false},
		{[4]byte{0x10, 1}, true, true},
		{[4]byte{0x10, 2}, true, true},
		{[4]byte{0x11, 1}, false, false},
		{[4]byte{0x01, 1}, false, false},
	} {
		if b, a := inSiwOrder(tc.ctrl[:], false), inSiwOrder(tc.ctrl[:], true); b != tc.beforeStart || a != tc.afterEnd {
			t.Errorf("%x: %v during start-up, %v after", tc.ctrl, b, a)
		}
	}
	for bit := range 3 {
		b := Terminate(DDPTaggedBounds).Append(nil)
		ctrl := b[len(b)-terminateLen:]
		ctrl[0], ctrl[2] = 0x01, 1<<bit|0x18 // protection error of layer 1 in siw's order, with unused bits
		s, ok := ParseSegment(b).InSiwBitOrder(true)
		if !ok {
			t.Fatalf("bit %d is not in siw's order", bit)
		}
		if h := s.Terminate; *h.LengthValid != (bit == 0) || *h.HasDDP != (bit == 1) || *h.HasRDMAP != (bit == 2) || *h.Reserved != 0 || h.Cause.Layer() != 1 || h.Cause.Type() != 0 {
			t.Errorf("bit %d: %+v", bit, h)
		}
	}
}

// A parsed segment does not alias its octets, and two octets have an opcode.
func TestParsedSegments(t *testing.T) {
	b := Send(1, []byte("abcd")).Append(nil)
	s := ParseSegment(b)
	clear(b)
	if string(s.Payload) != "abcd" {
		t.Errorf("the payload changed to %q", s.Payload)
	}
	if s := ParseSegment([]byte{0x41, 0x43}); s.Op() != OpSend || len(s.Verbatim) != 2 {
		t.Errorf("two octets: %v", s)
	}
}

func TestReadResponseToUsesSinkOfRequest(t *testing.T) {
	request := received(t, ReadRequest(1, At(0xaaaa5555, 0x1122334455667788), 3, At(1, 2))).Segment
	if s := ReadResponseTo(request, []byte("abc")).String(); s != "READ RESPONSE stag 0xaaaa5555 to 0x1122334455667788 3 B" {
		t.Error(s)
	}
}

func TestStartupExpectations(t *testing.T) {
	got, _, _ := ParseStartupFrame(Reply().Depths(4, 8).PeerToPeer(RTRWrite | RTRRead).Private([]byte("hi")).Append(nil))
	for _, want := range []StartupFrame{
		Reply(), Reply().Depths(4, 8), Reply().CRC(true), Reply().Revision(2), Reply().SFlag(true), Reply().Private([]byte("hi")),
		Reply().EditEnhanced(func(e *Enhanced) { e.ORD = new(uint16(8)) }), Reply().PeerToPeer(RTRWrite | RTRRead), Reply().PrivateLength(6),
	} {
		if d := want.Diff(got); len(d) != 0 {
			t.Errorf("expected %v: %v", want, d)
		}
	}
	for _, want := range []StartupFrame{
		Request(), Reply().Depths(4, 9), Reply().Depths(5, 8), Reply().CRC(false), Reply().Markers(true), Reply().Reject(true), Reply().Revision(1),
		Reply().SFlag(false), Reply().ReservedBits(1), Reply().Private([]byte("ho")), Reply().Private(nil), Reply().PeerToPeer(RTRSend), Reply().PrivateLength(5), Reply().WithKey("x"),
	} {
		if d := want.Diff(got); len(d) == 0 {
			t.Errorf("expected %v: %v matches", want, got)
		}
	}
	plain, _, _ := ParseStartupFrame(Request().Append(nil))
	if d := Request().Depths(1, 1).Diff(plain); d.String() != "enhanced data: want one, got none" {
		t.Error(d)
	}
}

func TestValuesThatDoNotFitPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"DV":     func() { Any().DV(4).Append(nil) },
		"opcode": func() { Op(16).Append(nil) },
		"key":    func() { Request().WithKey("MPA ID Req Frame!").Append(nil) },
		"ird":    func() { Request().Depths(0x4000, 0).Append(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic for a value that does not fit")
				}
			}()
			f()
		})
	}
}

func TestEnhancedFlags(t *testing.T) {
	f := Request().Depths(16, 16).Flags(FlagA | FlagD).Enhanced.Flags()
	if f != FlagA|FlagD || f.String() != "AD" || f.RTRs() != RTRRead {
		t.Errorf("%v, with RTRs %v", f, f.RTRs())
	}
	if f := (Enhanced{}).Flags(); f != 0 || f.String() != "no flags" {
		t.Errorf("%v of data without flags", f)
	}
}

// Terminates have the sizes of RFC 5040 section 4.8: 22 octets without quoted headers.
func TestTerminateContentLenMatchesEncoding(t *testing.T) {
	for _, c := range []struct {
		about Segment
		want  int
	}{
		{Write(1, 2, make([]byte, 16)), 38 - 22},
		{Send(1, make([]byte, 16)), 42 - 22},
		{ReadRequest(1, At(1, 2), 3, At(4, 5)), 70 - 22},
	} {
		sent := Terminate(DDPCatastrophic).About(c.about).Append(nil)
		got := ReceivedFPDU{Segment: ParseSegment(sent), ULPDU: sent}
		if n := got.Terminate.ContentLen(); n != c.want {
			t.Errorf("about %v: %d octets, want %d", c.about, n, c.want)
		}
		if word, rest := got.TerminateControl(); len(word) != 4 || len(rest) != c.want {
			t.Errorf("about %v: %d and %d octets, want 4 and %d", c.about, len(word), len(rest), c.want)
		}
	}
}

// A flag without its header changes the expected length.
func TestTerminateContentLenCountsMissingHeaders(t *testing.T) {
	h := Terminate(RDMAPCannotInvalidate).About(Send(1, nil)).Terminate
	h.HasRDMAP = new(true)
	sent := Segment{Terminate: h}.Opcode(OpTerminate).Append(nil)
	got := ReceivedFPDU{Segment: ParseSegment(sent), ULPDU: sent}
	if _, rest := got.TerminateControl(); len(rest) == got.Terminate.ContentLen() {
		t.Errorf("%d octets follow, as a flag without its header announces", len(rest))
	}
}
