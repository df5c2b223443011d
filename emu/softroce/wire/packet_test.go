package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// samplePacket has every field of every header set. Append encodes those of op.
func samplePacket(op Opcode, payloadLen int) Packet {
	p := Packet{
		BTH: BTH{
			Opcode: op, Solicited: true, PKey: DefaultPKey, BECN: true, Reserved6: 0x15,
			DestQP: 0x123456, AckReq: true, Reserved7: 0x2a, PSN: 0xfffffe,
		},
		RDETH:        RDETH{EEContext: 0xabcdef, Reserved: 1},
		XRCETH:       XRCETH{SRQN: 0x13579b, Reserved: 2},
		DETH:         DETH{QKey: 0x11111111, SrcQP: 0x222222, Reserved: 3},
		FETH:         FETH{Placement: 3, Selectivity: 1, Reserved: 4},
		RETH:         RETH{VA: 0x3333333333333333, RKey: 0x44444444, DMALen: 0x55555555},
		AtomicETH:    AtomicETH{VA: 0x6666666666666666, RKey: 0x77777777, SwapAdd: 0x8888888888888888, Compare: 0x9999999999999999},
		AETH:         AETH{Syndrome: Nak(NakRemoteAccess), MSN: 0xaaaaaa},
		AtomicAckETH: AtomicAckETH{Original: 0xbbbbbbbbbbbbbbbb},
		Imm:          0xcccccccc,
		IETH:         IETH{RKey: 0xdddddddd},
		Payload:      make([]byte, payloadLen),
	}
	for i := range p.Payload {
		p.Payload[i] = byte(i + 1)
	}
	return p
}

// definedOpcodes lists the opcodes that are not reserved.
func definedOpcodes() []Opcode {
	var ops []Opcode
	for i := range 256 {
		if _, ok := Opcode(i).Info(); ok {
			ops = append(ops, Opcode(i))
		}
	}
	return ops
}

// withOpcodeFields clears the headers that the opcode of p does not have.
func withOpcodeFields(p Packet) Packet {
	info, _ := p.BTH.Opcode.Info()
	want := Packet{BTH: p.BTH, Payload: p.Payload}
	src, dst := reflect.ValueOf(&p).Elem(), reflect.ValueOf(&want).Elem()
	for name, bit := range map[string]HeaderSet{
		"RDETH": HasRDETH, "XRCETH": HasXRCETH, "DETH": HasDETH, "FETH": HasFETH, "RETH": HasRETH,
		"AtomicETH": HasAtomicETH, "AETH": HasAETH, "AtomicAckETH": HasAtomicAckETH, "Imm": HasImm, "IETH": HasIETH,
	} {
		if info.Headers.Has(bit) {
			dst.FieldByName(name).Set(src.FieldByName(name))
		}
	}
	return want
}

func TestEveryOpcodeRoundTrips(t *testing.T) {
	reused := samplePacket(0, 8) // Parse must overwrite all fields
	for _, op := range definedOpcodes() {
		for payloadLen := range 9 {
			p := samplePacket(op, payloadLen)
			info, _ := op.Info()
			b := p.Append([]byte("head"))[4:]
			pad := -payloadLen & 3
			if want := info.HeaderLen + payloadLen + pad + 4; len(b) != want || len(b)%4 != 0 {
				t.Errorf("%v with %d bytes: packet of %d bytes, want %d", op, payloadLen, len(b), want)
			}
			if headers := p.AppendHeaders(nil); len(headers) != info.HeaderLen {
				t.Errorf("%v: headers of %d bytes, want %d", op, len(headers), info.HeaderLen)
			}
			if !bytes.Equal(b[info.HeaderLen+payloadLen:], make([]byte, pad+4)) {
				t.Errorf("%v with %d bytes: pad and ICRC bytes are not zero", op, payloadLen)
			}
			got := reused
			if err := got.Parse(b); err != nil {
				t.Fatalf("%v with %d bytes: %v", op, payloadLen, err)
			}
			want := withOpcodeFields(p)
			want.BTH.PadCount = uint8(pad)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v with %d bytes:\n got %+v\nwant %+v", op, payloadLen, got, want)
			}
			if !padOK(&got) {
				t.Errorf("%v with %d bytes: the pad count is wrong", op, payloadLen)
			}
		}
	}
}

func TestAppendIgnoresStalePadCount(t *testing.T) {
	p := samplePacket(MakeOpcode(TransportRC, OpSendOnly), 4)
	p.BTH.PadCount = 3
	var got Packet
	if err := got.Parse(p.Append(nil)); err != nil || got.BTH.PadCount != 0 {
		t.Errorf("pad count %d, %v; want 0", got.BTH.PadCount, err)
	}
	if p.BTH.PadCount != 3 {
		t.Error("Append changed the packet it wrote")
	}
	if err := got.BTH.parseInto(p.AppendHeaders(nil)); err != nil || got.BTH.PadCount != 3 {
		t.Errorf("AppendHeaders wrote pad count %d, %v; want 3, unchanged", got.BTH.PadCount, err)
	}
}

// parseInto is Parse without the rest.
func (h *BTH) parseInto(b []byte) error {
	_, err := h.Parse(b)
	return err
}

func TestPayloadAliasesBuffer(t *testing.T) {
	p := samplePacket(MakeOpcode(TransportRC, OpSendOnly), 5)
	b := p.Append(nil)
	var got Packet
	must.Do(t, got.Parse(b))
	if &got.Payload[0] != &b[BTHLen] {
		t.Error("Payload is a copy")
	}
	if cap(got.Payload) != 5 {
		t.Errorf("Payload has capacity %d: an append would overwrite pad and ICRC", cap(got.Payload))
	}
}

func TestEveryPrefixOfAPacketIsAnError(t *testing.T) {
	for _, op := range definedOpcodes() {
		p := samplePacket(op, 0)
		b := p.Append(nil)
		for n := range b {
			var got Packet
			must.Fail(t, fmt.Sprintf("%v: Parse(%d of %d bytes)", op, n, len(b)), got.Parse(b[:n]), ErrShort)
		}
	}
}

func TestShortPacketErrorNamesTheHeader(t *testing.T) {
	p := samplePacket(MakeOpcode(TransportRC, OpWriteOnlyImm), 0)
	b := p.Append(nil)
	for _, tc := range []struct {
		n    int
		want string
	}{
		{11, "BTH of 12 bytes: packet too short"},
		{12, "RETH of 16 bytes: packet too short"},
		{28, "ImmDt of 4 bytes: packet too short"},
		{35, "ICRC of 4 bytes: packet too short"},
	} {
		var got Packet
		if err := got.Parse(b[:tc.n]); err == nil || err.Error() != tc.want {
			t.Errorf("Parse(%d bytes) = %v, want %q", tc.n, err, tc.want)
		}
	}
}

func TestPadCountBeyondPayload(t *testing.T) {
	p := samplePacket(MakeOpcode(TransportRC, OpSendOnly), 0)
	for payload := range 4 {
		for pad := range uint8(4) {
			p.BTH.PadCount = pad
			b := append(p.AppendHeaders(nil), make([]byte, payload+ICRCLen)...)
			var got Packet
			err := got.Parse(b)
			if int(pad) > payload {
				if !errors.Is(err, ErrPad) {
					t.Errorf("pad %d of %d bytes: %v, want ErrPad", pad, payload, err)
				}
				continue
			}
			if err != nil || len(got.Payload) != payload-int(pad) {
				t.Errorf("pad %d of %d bytes: payload of %d, %v", pad, payload, len(got.Payload), err)
			}
			if want := payload == 0; padOK(&got) != want {
				t.Errorf("pad %d of %d bytes: right pad count: %v", pad, payload, padOK(&got))
			}
		}
	}
}

func TestReservedOpcodeKeepsBTH(t *testing.T) {
	for i := range 256 {
		op := Opcode(i)
		if _, ok := op.Info(); ok {
			continue
		}
		p := samplePacket(op, 0)
		b := p.Append(nil)
		if len(b) != BTHLen+ICRCLen {
			t.Errorf("%v: packet of %d bytes, want a BTH and an ICRC", op, len(b))
		}
		var got Packet
		must.Fail(t, fmt.Sprintf("%v: Parse", op), got.Parse(b), ErrOpcode)
		if got.BTH != p.BTH {
			t.Errorf("%v: BTH %+v, want %+v", op, got.BTH, p.BTH)
		}
	}
}

func TestPadLen(t *testing.T) {
	for n, want := range []int{0, 3, 2, 1, 0, 3, 2, 1, 0} {
		if got := PadLen(n); got != want {
			t.Errorf("PadLen(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestPacketDoesNotAllocate(t *testing.T) {
	p := samplePacket(MakeOpcode(TransportRC, OpWriteOnlyImm), 1021)
	buf := p.Append(nil)
	reserved := samplePacket(0x18, 0)
	badPad := append([]byte{0x04, 0x30}, make([]byte, 14)...)
	var got Packet
	for name, fn := range map[string]func(){
		"Append":                   func() { buf = p.Append(buf[:0]) },
		"AppendHeaders":            func() { buf = p.AppendHeaders(buf[:0]) },
		"Parse":                    func() { _ = got.Parse(buf) },
		"Parse of short packet":    func() { _ = got.Parse(buf[:20]) },
		"Parse of reserved opcode": func() { _ = got.Parse(reserved.AppendHeaders(buf[:0])) },
		"Parse of bad pad":         func() { _ = got.Parse(badPad) },
	} {
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, op := range definedOpcodes() {
		p := samplePacket(op, int(op)%9)
		f.Add(p.Append(nil))
	}
	reserved := samplePacket(0x18, 3)
	f.Add(reserved.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := samplePacket(0, 3) // stale
		err := got.Parse(b)
		switch {
		case errors.Is(err, ErrShort):
			if len(b) >= MaxHeaderLen+ICRCLen {
				t.Fatalf("%d bytes are enough for any opcode: %v", len(b), err)
			}
			return
		case errors.Is(err, ErrOpcode):
			if _, ok := Opcode(b[0]).Info(); ok {
				t.Fatalf("%v is not reserved", Opcode(b[0]))
			}
			if again := got.AppendHeaders(nil); !bytes.Equal(again, b[:BTHLen]) {
				t.Fatalf("BTH %x became %x", b[:BTHLen], again)
			}
			return
		case errors.Is(err, ErrPad):
			return
		case err != nil:
			t.Fatalf("unknown error %v", err)
		}
		headers := got.AppendHeaders(nil)
		tail := b[len(headers)+len(got.Payload):]
		if len(tail) != int(got.BTH.PadCount)+ICRCLen {
			t.Fatalf("%d bytes after the payload, pad count is %d", len(tail), got.BTH.PadCount)
		}
		again := append(append(headers, got.Payload...), tail...)
		if !bytes.Equal(again, b) {
			t.Fatalf("Parse then AppendHeaders: %x -> %x", b, again)
		}
		whole := got.Append(nil)
		if padOK(&got) {
			copy(b[len(b)-len(tail):], make([]byte, len(tail))) // pad and ICRC
			if !bytes.Equal(whole, b) {
				t.Fatalf("Parse then Append: %x -> %x", b, whole)
			}
		}
		var third Packet
		if err := third.Parse(whole); err != nil || !padOK(&third) {
			t.Fatalf("the packet of Append does not parse: %v", err)
		}
	})
}

// padOK reports whether the pad count is right for the length of the payload.
func padOK(p *Packet) bool { return int(p.BTH.PadCount) == PadLen(len(p.Payload)) }
