package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var cmEndCases = overCM.Cases([]conformance.Case{{
	ID: "cm/drep/answered-after-the-end", Cite: ibta("chapter 12", "roce/cm/7"),
	Run: OnPort(func(p *Port) {
		l := p.cmListen(verbs.PortSpaceTCP)
		k := p.cmEstablish(l, 0)
		k.sendDREQ()
		k.expectDREP()
		p.Must("a connection that has been disconnected", k.established.WaitDisconnect(p.ResponseTimeout()))
		k.AwaitState(k.QP, verbs.QPStateErr)
		k.sendDREQ()
		k.expectDREP()

		k = p.cmEstablish(l, 1)
		closing := p.Go("disconnect", k.established.Disconnect)
		pkt, _ := p.cmExpect(ib.DREQ{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID, RemoteQPN: new(uint32(peerQPN + 1))})
		mad, _, _ := pkt.CM()
		p.SendPacket(ib.CM(*mad.TID, ib.DREP{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID}))
		p.Must("a connection that has been disconnected", closing.Wait(p.ResponseTimeout()))
		p.Sync()
		k.sendDREQ()
		k.expectDREP()
	}),
}, {
	ID:   "cm/life/thousands-of-connections-leave-no-residue",
	Cite: ibta("", "roce/cm/13"), Labels: []string{conformance.Slow},
	Run: OnPort(func(p *Port) {
		conns := 1200
		if p.Virtual {
			conns = 10_000
		}
		l := p.cmListen(verbs.PortSpaceTCP)
		for n := range uint32(conns) {
			p.cmOpenAndClose(l, n)
		}
	}),
}, {
	ID: "cm/life/time-wait-gives-its-connection-back", Cite: ibta("", "roce/cm/13"),
	Run: OnPort(func(p *Port) {
		l := p.cmListen(verbs.PortSpaceTCP)
		p.cmOpenAndClose(l, 0)
		p.sleepTimeWait()
		p.cmOpenAndClose(l, 0)
	}),
}})

// cmEstablish establishes the n-th connection of a case.
func (p *Port) cmEstablish(l verbs.Listener, n uint32) *cmSession {
	k := p.cmOpen(l, n, func(r *ib.REQ) { r.AckTimeout = new(uint8(timeout67ms)) })
	k.establish()
	return k
}

// cmOpenAndClose establishes a connection, disconnects it, and frees its resources.
func (p *Port) cmOpenAndClose(l verbs.Listener, n uint32) {
	k := p.cmEstablish(l, n)
	k.sendDREQ()
	k.expectDREP()
	p.Must(fmt.Sprintf("connection %d that has been disconnected", n), k.established.WaitDisconnect(p.ResponseTimeout()))
	p.Must("a queue pair that is destroyed", k.QP.Close())
	p.Must("memory that is deregistered", k.TargetMem.Close())
	p.Must("memory that is deregistered", k.LocalMem.Close())
	for _, ok := p.PollCompletion(0); ok; _, ok = p.PollCompletion(0) {
		continue // flushed receives
	}
}

// sleepTimeWait sleeps longer than the time-wait state lasts: twice the packet lifetime
// that follows from the timeouts in the REQ.
func (p *Port) sleepTimeWait() {
	if p.Virtual {
		p.Sleep(10 * time.Minute)
		return
	}
	p.Sleep(3 * time.Second)
}
