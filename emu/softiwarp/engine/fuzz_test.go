package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// script makes the decisions of a fuzz test.
type script []byte

func (c *script) next() byte {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return b
}

func (c *script) take(n int) []byte {
	n = min(n, len(*c))
	b := (*c)[:n]
	*c = (*c)[n:]
	return b
}

const secretByte = 0xee

// fuzzed is a connection with a peer that sends anything.
type fuzzed struct {
	*tester
	open   *nic.Region
	closed nic.Bytes // memory that no peer may access
	secret []byte
	posted int
	recvd  int
}

func newFuzzed(t testing.TB, initiator bool) *fuzzed {
	h := newHost(t, func(c *Config, q *iwarp.QueueConfig) {
		c.MPA.PeerToPeer, c.EmptyWriteAfter = true, testEmptyWriteAfter
		q.Caps.MaxRecvWR, q.Caps.MaxSendWR = 4, 4
	})
	f := &fuzzed{tester: &tester{host: h}, secret: bytes.Repeat([]byte{secretByte}, 8)}
	if initiator {
		c := must.Get(h.nic.Connect(h.qp, ConnParam{IRD: 2, ORD: 2}))(t)
		f.c = c
	} else {
		f.c = h.nic.Incoming()
	}
	f.pipe = newPipe(t, f.c, nil)
	f.open, _ = h.region(256, allAccess)
	_, f.closed = h.region(256, verbs.AccessLocalWrite)
	for i := range f.closed {
		f.closed[i] = secretByte
	}
	framing := wire.Framing{CRC: true}
	f.framer = wire.NewFramer(framing)
	for range 4 {
		f.host.recv(uint64(f.recvd), sge(f.open, 0, 64))
		f.recvd++
	}
	return f
}

// step executes one action of the script.
func (f *fuzzed) step(c *script) {
	alive := !f.reset[0]
	switch c.next() & 15 {
	case 0, 1: // any octets
		if b := c.take(int(c.next())); alive && !f.eof[1] {
			f.give(0, b)
		}
	case 2: // an almost valid start-up frame
		frame := wire.StartFrame{Reply: f.c.initiator, CRC: true, Enhanced: true, Revision: 2, PrivateData: c.take(int(c.next()) & 15)}
		if c.next()&3 != 0 {
			frame.PrivateData = []byte{0xc0, 4, 0xc0, 4}
		}
		if alive && !f.eof[1] {
			f.give(0, frame.Append(nil))
		}
	case 3, 4, 5, 6: // an FPDU
		var g wire.Segment
		op := wire.Opcode(c.next() & 15)
		info, _ := op.Info()
		g.Control = wire.NewControl(op, c.next()&1 == 0)
		g.Untagged = wire.Untagged{QN: info.Queue, MSN: wire.MSN(c.next() & 3), MO: uint32(c.next() & 1)}
		g.Tagged = wire.Tagged{STag: wire.STag(f.open.Key), TO: f.open.Addr + uint64(c.next())}
		g.ReadRequest = wire.ReadRequest{Size: uint32(c.next()), SrcSTag: wire.STag(f.open.Key), SrcTO: f.open.Addr}
		g.AtomicRequest = wire.AtomicRequest{STag: wire.STag(f.open.Key), TO: f.open.Addr}
		if info.Class&wire.HasPayload != 0 {
			// Only the tester's own memory has octets that look secret.
			g.Payload = bytes.ReplaceAll(c.take(int(c.next())), []byte{secretByte}, []byte{0})
		}
		if alive && !f.eof[1] {
			f.sendSegment(g)
		}
	case 7:
		if alive && !f.eof[1] {
			f.eof[1] = true
			f.c.InputEOF(f.now)
		}
	case 8:
		if alive && c.next() == 7 {
			f.reset[0] = true
			f.c.Failed(f.now, link.ErrReset)
		}
	case 9:
		_ = f.c.Accept(f.now, f.qp, ConnParam{IRD: 2, ORD: 2})
	case 10:
		if c.next() == 7 {
			_ = f.c.Reject(f.now, nil)
		}
	case 11:
		ops := []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpRDMAWriteImm}
		op := ops[int(c.next())%len(ops)]
		if f.posted == cqDepth {
			break // one more could overflow the completion queue, which is an error
		}
		if f.qp.PostSend(&verbs.SendWR{Opcode: op, SGL: []verbs.SGE{sge(f.open, 0, 8)}}, Refs{}) == nil {
			f.posted++
		}
	case 12:
		f.c.Disconnect(f.now)
	case 13:
		f.later(time.Duration(c.next())*50*time.Millisecond, f.nic)
	case 14:
		f.maxWrite = 1 + int(c.next())
		f.write(0)
	case 15:
		if b := c.next(); b < 7 {
			_ = f.qp.Modify(f.now, verbs.QPAttr{State: verbs.QPState(b)}, verbs.QPAttrState)
			if b == 0 {
				f.posted, f.recvd = 0, 0 // released without completions
				poll(f.SendCQ)
				poll(f.RecvCQ)
			}
		}
	}
}

func FuzzConn(f *testing.F) {
	f.Add([]byte{0, 2, 0, 1, 9, 3, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4})
	f.Add([]byte{1, 2, 0, 1, 11, 2, 14, 200, 3, 2, 0, 0, 0, 0, 0, 8})
	f.Add([]byte{0, 2, 0, 1, 9, 3, 1, 0, 1, 0, 0, 99, 14, 255, 12, 7})
	f.Add([]byte{1, 2, 0, 1, 11, 0, 15, 5, 14, 10, 14, 200})
	f.Add(append([]byte{0, 0, 40}, wire.RequestKey+"\x50\x02\x00\x04\x00\x04\x00\x04"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := script(data)
		k := newFuzzed(t, c.next()&1 == 1)
		for len(c) > 0 {
			k.step(&c)
			for i := range k.closed {
				if k.closed[i] != secretByte {
					t.Fatal("memory that is closed was written")
				}
			}
			if bytes.Contains(k.log[0], k.secret) {
				t.Fatal("secret memory was sent")
			}
		}
		// Without more input the connection ends, unless it waits for the program, and all posted
		// requests complete.
		if k.c.State() < Accepted || k.c.State() == Established {
			k.c.Abort()
		}
		k.maxWrite = 0
		for range 3 {
			k.later(time.Hour, k.nic)
			k.write(0)
		}
		if k.c.State() == Accepted {
			k.c.Abort()
			k.write(0)
		}
		if k.c.State() != Closed || k.qp.conn != nil {
			t.Fatalf("the connection is %v", k.c.State())
		}
		if k.nic.Deadline() != mono.Never {
			t.Fatal("a timer is still armed")
		}
		if k.nic.Count.EmptyWrites > maxEmptyWrites {
			t.Fatalf("%d empty Writes", k.nic.Count.EmptyWrites)
		}
		if n := len(poll(k.SendCQ)); n != k.posted {
			t.Fatalf("%d of %d requests completed", n, k.posted)
		}
		if k.qp.state == verbs.QPStateErr {
			if n := len(poll(k.RecvCQ)); n != k.recvd {
				t.Fatalf("%d of %d receives completed", n, k.recvd)
			}
		}
	})
}
