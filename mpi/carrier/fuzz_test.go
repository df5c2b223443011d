package carrier

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// still is time that does not pass.
type still struct{}

func (still) Now() time.Duration    { return time.Second }
func (still) Sleep(time.Duration)   {}
func (still) Compute(time.Duration) {}

// patientUpper takes everything.
type patientUpper struct{ lost int }

func (u *patientUpper) Arrived(int, *wire.Header, []byte) error { return nil }
func (u *patientUpper) Finished(any, Op, error)                 {}
func (u *patientUpper) Lost(int, error)                         { u.lost++ }
func (u *patientUpper) EachAwaitedPeer(func(int))               {}
func (u *patientUpper) FlushNeeded()                            {}

// FuzzPackets has peers send whatever comes to somebody's mind. Only memory that was
// made reachable changes, and what makes no sense costs the peer that said it.
func FuzzPackets(f *testing.F) {
	seed := func(k kind, seq uint32, body []byte) {
		b := make([]byte, prefixLen)
		(&prefix{kind: k, from: 1, seq: seq, ack: 1}).put(b)
		b = append(b, body...)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	var enc wire.Encoder
	seed(word, 1, append(enc.Append(nil, &wire.Header{Kind: wire.Eager, Tag: 3}), "hello"...))
	seed(bare, 0, nil)
	at := binary.LittleEndian.AppendUint64(nil, firstAddr+8)
	at = binary.LittleEndian.AppendUint32(at, 7)
	seed(put, 1, append(at, "data"...))
	seed(get, 1, append(append([]byte{1, 0, 0, 0}, at...), 8, 0, 0, 0, 0, 0, 0, 0))
	seed(ask, 1, hand{rail: 0, qpn: 5}.bytes())
	seed(offer, 1, make([]byte, offerLen))
	one := enc.Append(nil, &wire.Header{Kind: wire.Eager, Tag: 4})
	one = append(binary.LittleEndian.AppendUint16(nil, uint16(len(one))), one...)
	seed(words, 1, append(one, one...))
	f.Fuzz(func(t *testing.T, in []byte) {
		up := &patientUpper{}
		c := &Carrier{
			env: &env.Env{Rank: 0, Size: 3, Proc: still{}}, up: up, peers: make([]*peer, 3),
			byKey: make(map[uint32]*registered),
		}
		c.rails = []*rail{{c: c}}
		c.cfg.setDefaults()
		memory := make([]byte, 96)
		c.byKey[7] = &registered{addr: firstAddr, buf: memory[32:64]}
		for len(in) > 0 {
			n := min(int(in[0]), len(in)-1)
			c.took(in[1:1+n], nil, OverSharedMemory)
			in = in[1+n:]
		}
		if !bytes.Equal(memory[:32], make([]byte, 32)) || !bytes.Equal(memory[64:], make([]byte, 32)) {
			t.Fatal("memory changed that nobody had made reachable")
		}
		for _, p := range c.peers {
			if p != nil && len(p.early) > maxEarly {
				t.Fatalf("%d packets are kept", len(p.early))
			}
		}
	})
}
