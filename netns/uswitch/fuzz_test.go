package uswitch

import (
	"bytes"
	"testing"
	"time"
)

// fuzzedHandler returns a FrameHandler whose action on each frame is a byte of moves.
func fuzzedHandler(moves []byte) FrameHandler {
	return handlerFunc(func(f Frame, emit Emit) {
		if len(moves) == 0 {
			emit(0, f)
			return
		}
		move := moves[0]
		moves = moves[1:]
		switch move % 8 {
		case 0:
		case 1:
			emit(0, f)
			emit(0, f)
		case 2:
			emit(time.Duration(move), f)
		case 3:
			emit(0, Frame{bytes.Clone(f.Bytes[:len(f.Bytes)*int(move)/255]), f.ChecksumPartial})
		case 4:
			emit(0, Frame{append(bytes.Clone(f.Bytes), make([]byte, int(move)*300)...), f.ChecksumPartial})
		case 5:
			emit(-1, Frame{f.Bytes, !f.ChecksumPartial})
		default:
			emit(0, f)
		}
	})
}

// FuzzSwitch passes arbitrary bytes and vnet headers to a switch with arbitrary FrameHandlers.
// Messages must not exceed the limit of a packet socket. The input must not change.
func FuzzSwitch(f *testing.F) {
	for _, k := range kinds {
		p := gsoPacket(f, k, 100, 1000, tcpPSH)
		var v [vnetLen]byte
		p.vnet.put(v[:])
		f.Add(append(v[:], p.bytes...), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	}
	f.Add(append(make([]byte, vnetLen), bare(macA, macB)...), []byte{2, 2})
	f.Fuzz(func(t *testing.T, b, moves []byte) {
		if len(b) < vnetLen || len(b) > maxFrame {
			return
		}
		p := packet{vnet: parseVnet(b), bytes: bytes.Clone(b[vnetLen:])}
		isGSO := p.isGSO()
		r := newRig(t, 3, func(c *Config) {
			c.Ports[0].In, c.Ports[1].Out = fuzzedHandler(moves), fuzzedHandler(moves[len(moves)/2:])
		})
		r.receive(r.ports[0], &p)
		r.flush()
		for r.deadline() != Never {
			r.now = r.deadline()
			r.runTimers()
			r.flush()
		}
		if isGSO && !bytes.Equal(p.bytes, b[vnetLen:]) {
			t.Error("the GSO packet was changed")
		}
		for _, out := range r.out {
			for _, m := range out {
				if len(m) < minFrame || len(m) > maxFrame {
					t.Errorf("a message of %d bytes", len(m))
				}
			}
		}
		if st := r.stats(); st.DelayedFrames != 0 || st.DelayedBytes != 0 {
			t.Errorf("%d frames, %d bytes held at the end", st.DelayedFrames, st.DelayedBytes)
		}
	})
}

// FuzzParse checks that headers lie inside the frame, in order.
func FuzzParse(f *testing.F) {
	for _, k := range kinds {
		f.Add(packetSpec{kind: k, payload: []byte("payload")}.frame(f))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := parse(b)
		if !ok {
			return
		}
		if l.l3 < etherLen || l.l4 < l.l3+20 || l.payload < l.l4+8 || l.payload > len(b) || l.payload > maxHeader || l.checksumAt()+2 > l.payload {
			t.Fatalf("%+v in %d bytes", l, len(b))
		}
		h := bytes.Clone(b)
		l.setLength(h, 10)
		if l.ipBytes(h) != l.payload-l.l3+10 {
			t.Fatalf("length %d, want %d", l.ipBytes(h), l.payload-l.l3+10)
		}
	})
}

func TestParseRejectsEveryPrefix(t *testing.T) {
	for _, k := range kinds {
		b := packetSpec{kind: k}.frame(t)
		for n := range b {
			if _, ok := parse(b[:n]); ok {
				t.Errorf("%s: %d of %d bytes were parsed as headers", k.name, n, len(b))
			}
		}
		if _, ok := parse(b); !ok {
			t.Errorf("%s: not parsed", k.name)
		}
	}
}
