package agent

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// clientFrames returns the frames of a client that uses every object once.
func clientFrames(tb testing.TB) (frames [][]byte) {
	tb.Helper()
	c, _ := loopback(new(fakeHost))
	send := c.out
	c.out = func(f control.Frame) {
		frames = append(frames, f.Append(nil))
		send(f)
	}
	dev := must.Get(c.Open("fake0"))(tb)
	dev.QueryDevice() // only the requests of this and the following calls matter
	dev.QueryPort(1)
	dev.QueryGID(1, 0)
	dev.QueryPKey(1, 0)
	dev.WaitAsync(0)
	dev.Counters()
	pd := must.Get(dev.AllocPD())(tb)
	ch := must.Get(dev.CreateCompChannel())(tb)
	cq := must.Get(dev.CreateCQ(verbs.CQInit{Depth: 1, Channel: ch}))(tb)
	cq.ReqNotify(true)
	cq.Poll(make([]verbs.WC, 10))
	ch.Wait(0)
	x := must.Get(dev.OpenXRCD())(tb)
	srq := must.Get(dev.CreateSRQ(verbs.SRQInit{PD: pd, XRCD: x, CQ: cq}))(tb)
	qp := must.Get(dev.CreateQP(verbs.QPInit{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq}))(tb)
	dev.OpenQP(x, 1)
	mr := must.Get(pd.RegMR(verbs.MRInit{Buf: bytes.Repeat([]byte("memory"), 50)}))(tb)
	mw := must.Get(pd.AllocMW(verbs.MWType1))(tb)
	ah := must.Get(pd.CreateAH(verbs.AHAttr{}))(tb)
	info := verbs.BindInfo{MR: mr}
	qp.BindMW(mw, 1, 0, info)
	qp.PostSend([]verbs.SendWR{{SGL: []verbs.SGE{{}}, Inline: []byte{1}, UD: verbs.UD{AH: ah}, Bind: verbs.Bind{MW: mw, Info: info}}})
	qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{}}}})
	qp.Modify(verbs.QPAttr{}, 1)
	cm := must.Get(dev.CM())(tb)
	l := must.Get(cm.Listen(netip.MustParseAddrPort("10.0.0.1:1"), 1, 1))(tb)
	req := must.Get(l.GetRequest(time.Hour))(tb)
	conn := must.Get(req.Accept(qp, verbs.ConnParam{PrivateData: []byte("hi")}, 0))(tb)
	conn.Disconnect()
	c.SetAddress("fake0", netip.MustParsePrefix("10.0.0.1/24"), true)
	mr.Close()
	dev.Close()
	return frames
}

// FuzzServer sends any bytes of an authenticated client to an agent. The agent must not crash, and
// must close everything when the client disconnects.
func FuzzServer(f *testing.F) {
	frames := clientFrames(f)
	f.Add(bytes.Join(frames, nil))
	for i := range frames {
		f.Add(bytes.Join(frames[:i], nil))
		f.Add(frames[i])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		host := new(fakeHost)
		conn := newConn(far, Timing{}.withDefaults(), control.Call)
		s := newSession(host, new(Server), func(f control.Frame) { _ = conn.QueueNow(f) })
		s.memory.limit = 1 << 20 // keeps scans short
		s.crash = func(what any, stack []byte) { t.Errorf("%v\n%s", what, stack) }
		go run(conn)
		go func() {
			near.Write(b) // the agent may have disconnected
			near.Close()
		}()
		go func() {
			for buf := make([]byte, 4096); ; {
				if _, err := near.Read(buf); err != nil {
					return
				}
			}
		}()
		err := conn.Serve(s.receive)
		if err == nil {
			t.Error("it ended without a reason")
		}
		conn.Close(err)
		if err := s.end(30 * time.Second); err != nil {
			t.Error(err)
		}
		for _, d := range host.opened {
			if open := d.openObjects(); len(open) > 0 {
				t.Errorf("%v are open", open)
			}
		}
		if n := len(s.memory.all); n > maxMemories {
			t.Errorf("%d pieces of memory", n)
		}
	})
}

// FuzzClient sends any bytes to a client.
func FuzzClient(f *testing.F) {
	f.Add(control.Frame{Kind: control.Reply, Num: 1, Body: []byte{0}}.Append(nil))
	f.Add(control.Frame{Kind: kindMemory, Body: []byte{0, recordChange, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'}}.Append(nil))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := newClient(func(control.Frame) {})
		c.memory.use(&verbs.MRInit{Buf: make([]byte, 100)})
		for range 3 {
			go (&remoteListener{ref: ref{c: c}}).GetRequest(0) // its result does not matter
		}
		near, far := net.Pipe()
		go func() {
			far.Write(b) // the client may have disconnected
			far.Close()
		}()
		_ = newConn(near, Timing{}.withDefaults(), control.Reply).Serve(c.receive)
		near.Close()
		c.Close()
	})
}
