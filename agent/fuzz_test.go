package agent

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// said is all that a client says that does one of everything.
func said(tb testing.TB) (frames [][]byte) {
	tb.Helper()
	c := newClient(nil)
	s := newSession(new(fakeHost), loopbackHost{}, loopbackSender{to: c.receive, c: c})
	s.run = func(f func()) { f() }
	s.memory.sendLock = c.memory.sendLock
	c.out = loopbackSender{to: func(kind byte, body []byte) error {
		frame := append(newFrame(kind, len(body)), body...)
		seal(frame)
		frames = append(frames, frame)
		return s.receive(kind, body)
	}, c: c}
	dev := must[verbs.Context](tb)(c.Open("fake0"))
	dev.QueryDevice()   // of this and what follows only the questions count
	dev.QueryPort(1)    // so
	dev.QueryGID(1, 0)  // so
	dev.QueryPKey(1, 0) // so
	dev.WaitAsync(0)    // so
	dev.Counters()
	pd := must[verbs.PD](tb)(dev.AllocPD())
	ch := must[verbs.CompChannel](tb)(dev.CreateCompChannel())
	cq := must[verbs.CQ](tb)(dev.CreateCQ(verbs.CQInit{Depth: 1, Channel: ch}))
	cq.ReqNotify(true)            // so
	cq.Poll(make([]verbs.WC, 10)) // so
	ch.Wait(0)                    // so
	x := must[verbs.XRCD](tb)(dev.OpenXRCD())
	srq := must[verbs.SRQ](tb)(dev.CreateSRQ(verbs.SRQInit{PD: pd, XRCD: x, CQ: cq}))
	qp := must[verbs.QP](tb)(dev.CreateQP(verbs.QPInit{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq}))
	dev.OpenQP(x, 1) // so
	mr := must[verbs.MR](tb)(pd.RegMR(verbs.MRInit{Buf: bytes.Repeat([]byte("memory"), 50)}))
	mw := must[verbs.MW](tb)(pd.AllocMW(verbs.MWType1))
	ah := must[verbs.AH](tb)(pd.CreateAH(verbs.AHAttr{}))
	info := verbs.BindInfo{MR: mr}
	qp.BindMW(mw, 1, 0, info)                                                                                                          // so
	qp.PostSend([]verbs.SendWR{{SGL: []verbs.SGE{{}}, Inline: []byte{1}, UD: verbs.UD{AH: ah}, Bind: verbs.Bind{MW: mw, Info: info}}}) // so
	qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{}}}})                                                                                // so
	qp.Modify(verbs.QPAttr{}, 1)                                                                                                       // so
	cm := must[verbs.CM](tb)(dev.CM())
	l := must[verbs.Listener](tb)(cm.Listen(netip.MustParseAddrPort("10.0.0.1:1"), 1, 1))
	req := must[verbs.ConnRequest](tb)(l.GetRequest(time.Hour))
	conn := must[verbs.Conn](tb)(req.Accept(qp, verbs.ConnParam{PrivateData: []byte("hi")}, 0))
	conn.Disconnect()                                                 // so
	c.SetAddress("fake0", netip.MustParsePrefix("10.0.0.1/24"), true) // so
	mr.Close()                                                        // so
	dev.Close()                                                       // so
	return frames
}

// FuzzServer has an agent hear whatever a caller with the right key may say. It must not
// crash, and everything must be closed when the caller is gone.
func FuzzServer(f *testing.F) {
	frames := said(f)
	f.Add(bytes.Join(frames, nil))
	for i := range frames {
		f.Add(bytes.Join(frames[:i], nil))
		f.Add(frames[i])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		host := new(fakeHost)
		l := newLink(far, Timing{}.filled())
		s := newSession(host, new(Server), l)
		s.memory.limit = 1 << 20 // or all the time goes into looking at it
		s.crash = func(what any, stack []byte) { t.Errorf("%v\n%s", what, stack) }
		go l.write()
		go func() {
			near.Write(b) // the agent may have had enough
			near.Close()
		}()
		go func() {
			for buf := make([]byte, 4096); ; {
				if _, err := near.Read(buf); err != nil {
					return
				}
			}
		}()
		if err := l.read(s.receive); err == nil {
			t.Error("it ended without a reason")
		}
		if err := s.end(30 * time.Second); err != nil {
			t.Error(err)
		}
		for _, d := range host.opened {
			if open := d.isOpen(); len(open) > 0 {
				t.Errorf("%v are open", open)
			}
		}
		if n := len(s.memory.all); n > maxMemories {
			t.Errorf("%d pieces of memory", n)
		}
	})
}

// FuzzClient has a client hear whatever an agent may say.
func FuzzClient(f *testing.F) {
	f.Add([]byte{frameReply, 1, 0})
	f.Add([]byte{frameMemory, 0, recordChange, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := newClient(loopbackSender{to: func(byte, []byte) error { return nil }})
		c.memory.use(&verbs.MRInit{Buf: make([]byte, 100)})
		for range 3 {
			go callNext.callThen(c, waitOn[verbs.Listener]{}, func(*peered) {}) // whatever comes of it
		}
		for len(b) > 0 {
			n := min(len(b), 1+int(b[0]))
			if c.receive(b[0]%8, b[1:n]) != nil {
				break
			}
			b = b[n:]
		}
		c.Close()
	})
}
