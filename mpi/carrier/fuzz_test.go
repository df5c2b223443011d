package carrier

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// frozenClock is a clock that does not advance.
type frozenClock struct{}

func (frozenClock) Now() time.Duration    { return time.Second }
func (frozenClock) Sleep(time.Duration)   {}
func (frozenClock) Compute(time.Duration) {}

// discardUpper accepts and ignores everything.
type discardUpper struct{ lost int }

func (u *discardUpper) Arrived(int, *wire.Header, []byte) error { return nil }
func (u *discardUpper) Finished(any, Op, error)                 {}
func (u *discardUpper) Lost(int, error)                         { u.lost++ }
func (u *discardUpper) EachAwaitedPeer(func(int))               {}
func (u *discardUpper) FlushNeeded()                            {}

// fakePD registers memory with key 7.
type fakePD struct{ verbs.PD }

func (fakePD) RegMR(verbs.MRInit) (verbs.MR, error) { return fakeMR{}, nil }

type fakeMR struct{ verbs.MR }

func (fakeMR) RKey() verbs.RKey { return 7 }

// fuzzGroup is a multicast group of all ranks.
const fuzzGroup = 9

// FuzzPackets handles arbitrary packets. They may change registered memory only, and the
// carrier bounds the packets that it buffers.
func FuzzPackets(f *testing.F) {
	seed := func(k kind, seq uint32, body []byte) {
		b := make([]byte, PrefixLen)
		(&prefix{kind: k, from: 1, seq: seq, ack: 1}).put(b)
		b = append(b, body...)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	var enc wire.Encoder
	seed(message, 1, append(enc.Append(nil, &wire.Header{Kind: wire.Eager, Tag: 3}), "hello"...))
	seed(ackOnly, 0, nil)
	at := binary.LittleEndian.AppendUint64(nil, 1<<20+8) // in the first registered block
	at = binary.LittleEndian.AppendUint32(at, 7)
	seed(putData, 1, append(at, "data"...))
	seed(getRequest, 1, append(append([]byte{1, 0, 0, 0}, at...), 8, 0, 0, 0, 0, 0, 0, 0))
	seed(connREQ, 1, connInfo{rail: 0, qpn: 5}.bytes())
	seed(ringOffer, 1, make([]byte, offerLen))
	one := enc.Append(nil, &wire.Header{Kind: wire.Eager, Tag: 4})
	one = append(binary.LittleEndian.AppendUint16(nil, uint16(len(one))), one...)
	seed(coalesced, 1, append(one, one...))
	segment := append(binary.LittleEndian.AppendUint64(nil, fuzzGroup), 2, 0, 0, 0)
	segment = append(enc.Append(segment, &wire.Header{Kind: wire.Eager, Tag: 5}), "hello"...)
	seed(multicastSegment, 0, segment)
	seed(multicastResent, 1, segment)
	seed(multicastReported, 1, append(binary.LittleEndian.AppendUint64(nil, fuzzGroup), 1, 0, 0, 0, 1, 1))
	seed(multicastReportDatagram, 0, append(binary.LittleEndian.AppendUint64(nil, fuzzGroup), 1, 0, 0, 0, 1, 1))
	seed(multicastResentDatagram, 0, segment)
	f.Fuzz(func(t *testing.T, in []byte) {
		up := &discardUpper{}
		e := &transport.Env{Rank: 0, Size: 3, Proc: frozenClock{}}
		c := &Carrier{env: e, up: up, timing: timing{clock: clock{env: e}}, peerTable: peerTable{make([]*peer, 3), newPeerLists()}}
		c.rails = []*rail{{Rail: &transport.Rail{}, c: c}}
		c.cfg.setDefaults()
		c.mem = memory.New(memory.Config{Domains: []memory.Domain{{PD: fakePD{}}}, PacketSize: c.cfg.PacketSize})
		buf := make([]byte, 96)
		if _, err := c.mem.Keep(memory.RingBuffers, buf[32:64]); err != nil {
			t.Fatal(err)
		}
		for rank := 1; rank < len(c.peers); rank++ {
			c.peer(rank).queue = make([]outgoing, 1) // answers wait: no transport has room
		}
		kept, err := c.mem.SendBuffer(64)
		if err != nil {
			t.Fatal(err)
		}
		g := &multicastGroup{id: fuzzGroup, members: []int{1, 2}, out: newMulticastSender(4, []int{1, 2}), in: map[int]*groupReceiver{}}
		g.out.Add(&packet{Packet: transport.Packet{Buf: kept, Len: 64}})
		c.groups = multicastGroups{byID: map[uint64]*multicastGroup{fuzzGroup: g}, all: []*multicastGroup{g}}
		for len(in) > 0 {
			n := min(int(in[0]), len(in)-1)
			c.receivePacket(in[1:1+n], nil, OverSharedMemory)
			in = in[1+n:]
		}
		if !bytes.Equal(buf[:32], make([]byte, 32)) || !bytes.Equal(buf[64:], make([]byte, 32)) {
			t.Fatal("unregistered memory changed")
		}
		for _, p := range c.peers {
			if p != nil && len(p.in.early) > maxEarly {
				t.Fatalf("%d packets are buffered", len(p.in.early))
			}
		}
	})
}
