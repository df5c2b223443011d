package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Defects are the defects of a layer that no single packet tells. Tags say what
// each does, and which requirement it breaks.
type Defects struct {
	// Start of flows.
	LivesAlike        bool `imitates:"dg/start/2, dg/start/3" does:"epochs count up, and every life has the same incarnation"`
	NoChallenge       bool `imitates:"dg/start/4, dg/start/5" does:"starts need no proof"`
	CookieUnbound     bool `imitates:"dg/start/5" does:"a cookie is good for everybody, for every flow and for ever"`
	AnswersChallenged bool `imitates:"dg/start/6" does:"only cookies are proofs"`
	OldFlowKept       bool `imitates:"dg/start/7" does:"a new flow does not replace the old one"`
	WindowBeforeProof bool `imitates:"dg/start/8" does:"all that waits is sent before there is a proof"`
	AnyEpochHeeded    bool `imitates:"dg/start/11, dg/start/12" does:"Refusals, Challenges and Acks count whatever epoch they name, and a Refusal ends a flow that is starting"`

	// Data and acknowledgement.
	DeliversAsTheyCome bool `imitates:"dg/ack/1" does:"segments are handed up as they come, copies too"`
	GapsForgotten      bool `imitates:"dg/ack/3" does:"what comes behind a gap is acknowledged and dropped"`
	BeyondWindowTaken  bool `imitates:"dg/ack/2" does:"packets more than 256 ahead are taken, and what is missing before them counts as arrived"`
	AcksLazy           bool `imitates:"dg/ack/4" does:"acknowledgements wait a millisecond, always"`
	EchoLatest         bool `imitates:"dg/loss/1" does:"the echo is the timestamp of the latest packet"`

	// Loss, congestion and busy receivers.
	NoWindow        bool `imitates:"dg/ack/2, dg/cc/1, dg/cc/2" does:"there is neither a congestion window nor a limit of 256 packets under way"`
	NoPacing        bool `imitates:"dg/cc/4" does:"a window leaves at once"`
	TimeoutFixed    bool `imitates:"dg/loss/2" does:"the timeout is 10 ms, always"`
	TimeoutLosesOne bool `imitates:"dg/loss/3" does:"at a timeout only the oldest packet is sent again"`
	NoEarlyResend   bool `imitates:"dg/loss/4" does:"losses are found by timeout only"`
	OneLaterTells   bool `imitates:"dg/loss/4" does:"a packet counts as lost as soon as one that was sent later has arrived"`
	NeverGivesUp    bool `imitates:"dg/loss/5" does:"a peer that is silent is tried for ever"`
	BusyHammers     bool `imitates:"dg/busy/2" does:"a busy peer is tried every 100 µs, and given up after a second"`
	NoResume        bool `imitates:"dg/busy/3" does:"nobody is told when receives are posted"`

	// Forgetting.
	FlowGoesOn   bool `imitates:"dg/idle/1, dg/idle/2" does:"flows never grow old"`
	ForgetsEarly bool `imitates:"dg/idle/2" does:"a peer is forgotten after five seconds of silence"`
	EvictsOldest bool `imitates:"dg/idle/3" does:"if the table of peers is full, the one that has been silent for longest makes room"`
}

// forever is longer than anybody waits.
const forever = time.Duration(1) << 61

// applyDefects makes those times and limits wrong that defects are about. It comes
// behind the check of what goes together.
func (c *Config) applyDefects() {
	q, t := &c.Defects, &c.Timing
	if q.AcksLazy {
		t.AckHold = time.Millisecond
	}
	if q.NoWindow {
		c.Limits.PeerSegments = max(c.Limits.PeerSegments, 1<<12)
	}
	if q.NeverGivesUp {
		t.GiveUp = forever
	}
	if q.BusyHammers {
		t.BusyMin, t.BusyMax, t.BusyLimit = 100*time.Microsecond, 100*time.Microsecond, time.Second
	}
	if q.FlowGoesOn {
		t.Fresh, t.Idle = forever, forever
	}
	if q.ForgetsEarly {
		t.Idle = 5 * time.Second
	}
}

// ackLazily (AcksLazy) has an acknowledgement leave when one would that has
// nothing to tell but peace.
func (p *Peer) ackLazily() {
	p.holdAck(min(p.ackAt, p.layer.clock.Add(p.layer.cfg.Timing.AckHold)))
	p.layer.timers.sooner(p)
}

// keepOld (OldFlowKept) answers the start of another flow with how far the one
// that is known has come.
func (l *Layer) keepOld(p *Peer, d *wire.Data) {
	if l.renamed == nil {
		l.renamed = map[*Peer]wire.Epoch{}
	}
	l.renamed[p] = d.Epoch
	p.echo = d.Timestamp
	p.set(flagEcho, true)
	p.ackNow()
}

// rename has the acknowledgement of keepOld name the flow that it answers.
func (l *Layer) rename(p *Peer, a *wire.Ack) {
	if e, ok := l.renamed[p]; ok {
		a.Epoch = e
		delete(l.renamed, p)
	}
}

// jump (BeyondWindowTaken) counts all before seq as arrived.
func (p *Peer) jump(seq wire.Seq) {
	for p.stored != nil {
		p.layer.unstore(p)
	}
	p.rcvNext = seq
}

// unpaced (NoPacing, NoWindow) reports whether packets leave as fast as they can.
func (l *Layer) unpaced() bool { return l.cfg.Defects.NoPacing || l.cfg.Defects.NoWindow }

// loseOldest (TimeoutLosesOne) holds nothing for lost but what has waited
// longest.
func (p *Peer) loseOldest() {
	if s := p.oldest; !s.sacked && !s.lost {
		s.lost = true
		p.lost++
	}
	p.resend = nil
}

// evict (EvictsOldest) forgets the peer that has been silent for longest, of
// those to which nothing is under way.
func (l *Layer) evict(now mono.Time) {
	var oldest *Peer
	for _, p := range l.timers.heap {
		idle := p.una == p.next && p.heard < now
		if idle && (oldest == nil || p.heard < oldest.heard || p.heard == oldest.heard && p.number < oldest.number) {
			oldest = p
		}
	}
	if oldest != nil {
		l.forget(oldest)
		oldest.err = ErrIdle
		l.notice(oldest)
	}
}
