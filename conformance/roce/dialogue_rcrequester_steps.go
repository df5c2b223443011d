package roce

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// requesterStep is a step of a dialogue with the requester of an RC queue pair. PSNs are relative
// to the outstanding ones.
type requesterStep struct {
	kind  *requesterStepKind
	attr  requesterAttr   // of stepConnect
	posts []requesterPost // of stepPost
	// n selects a PSN or a number of packets, code a timer, NAK or syndrome, and variant a kind of
	// packet.
	n, code, variant int
}

// requesterAttr are the attributes of a connection.
type requesterAttr struct {
	mtu                          verbs.MTU
	psn                          ib.PSN
	rdAtomic                     uint8
	timeout, retries, rnrRetries uint8
	signalAll                    bool
}

var defaultRequesterAttr = requesterAttr{mtu: verbs.MTU256, psn: firstDevicePSN, rdAtomic: 4, retries: 7, rnrRetries: 7}

// requesterPost describes a send request.
type requesterPost struct {
	op     verbs.WROpcode
	flags  verbs.SendFlags
	mtus   int // length: so many path MTUs,
	extra  int // and so many bytes more or less
	pieces int // of the scatter/gather list
	value  uint32
	bad    bool // a wrong L_Key, a bind of a bound window or an invalidate of a free one
}

// requesterStepKind is a kind of step.
type requesterStepKind struct {
	// describe says what the step does, with the numbers of the step: n, code and variant.
	describe string
	play     func(*rcRequesterSession, *requesterStep)
}

func (s requesterStep) String() string {
	switch {
	case s.kind == stepConnect:
		return fmt.Sprintf("connect with %+v", s.attr)
	case len(s.posts) > 0:
		var all []string
		for _, p := range s.posts {
			all = append(all, p.String())
		}
		return "post " + strings.Join(all, ", ")
	}
	return fmt.Sprintf(s.kind.describe, s.n, s.code, s.variant)
}

func (p requesterPost) String() string {
	s := fmt.Sprintf("%v of %d MTU %+d bytes in %d pieces", p.op, p.mtus, p.extra, p.pieces)
	for i, name := range []string{"fenced", "signaled", "solicited", "inline"} {
		if p.flags>>i&1 != 0 {
			s += " " + name
		}
	}
	if p.bad {
		s += ", invalid"
	}
	return s
}

// Kinds of steps.
var (
	stepConnect = &requesterStepKind{"connect", func(*rcRequesterSession, *requesterStep) {}}
	stepPost    = &requesterStepKind{"post", (*rcRequesterSession).playPost}
	stepRespond = &requesterStepKind{"valid response %d (%d, style %d)", (*rcRequesterSession).playRespond}
	stepStale   = &requesterStepKind{"response %[3]d (code %[2]d) with a PSN %[1]d before the newest acknowledged one", (*rcRequesterSession).playStale}
	stepGhost   = &requesterStepKind{"response %[3]d (code %[2]d) with a PSN %[1]d after the newest sent one", (*rcRequesterSession).playGhost}
	stepAckPast = &requesterStepKind{"ACK at or after the first unanswered READ or atomic, PSN %d", (*rcRequesterSession).playAckPast}
	stepNak     = &requesterStepKind{"sequence NAK at outstanding packet %[1]d, %[3]d copies more", (*rcRequesterSession).playNak}
	stepRNR     = &requesterStepKind{"RNR NAK at outstanding packet %d with timer %d", (*rcRequesterSession).playRNR}
	stepGap     = &requesterStepKind{"READ response after a gap of %d", (*rcRequesterSession).playGap}
	stepFatal   = &requesterStepKind{"fatal NAK at outstanding packet %d with code %d", (*rcRequesterSession).playFatal}
	stepOdd     = &requesterStepKind{"ACK with reserved syndrome %[2]d", (*rcRequesterSession).playReserved}
	stepBad     = &requesterStepKind{"invalid response %[3]d", (*rcRequesterSession).playBadAnswer}
	stepDamaged = &requesterStepKind{"ACK of everything that is invalid: %[3]d", (*rcRequesterSession).playDamaged}
	stepWait    = &requesterStepKind{"wait for a timer", (*rcRequesterSession).playWait}
	stepToErr   = &requesterStepKind{"move the queue pair to ERR", (*rcRequesterSession).playToErr}
	stepDrain   = &requesterStepKind{"move the queue pair to SQD", (*rcRequesterSession).playDrain}
	stepResume  = &requesterStepKind{"move the queue pair from SQD to RTS", (*rcRequesterSession).playResume}
)

// Draw returns a random step.
func (s *rcRequesterSession) Draw(r *rand.Rand) requesterStep {
	if s.Conn == nil {
		return requesterStep{kind: stepConnect, attr: s.mix.drawAttr(r)}
	}
	_, n := s.model.Outstanding()
	step := requesterStep{n: r.IntN(64), code: r.IntN(32), variant: r.IntN(64)}
	switch {
	case r.IntN(s.mix.every) == 0:
		step.kind = pick(r, s.mix.abnormal)
		if r.IntN(8) == 0 {
			step.n = r.IntN(1 << 22)
		}
	case n == 0 || n < requesterMaxPackets/2 && r.IntN(100) < 45:
		step.kind = stepPost
		for range 1 + r.IntN(3) {
			step.posts = append(step.posts, s.mix.drawPost(r))
		}
	default:
		step.kind = stepRespond
	}
	return step
}

// pick returns a random element.
func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// drawAttr draws the attributes of a connection. PSNs start near the wrap of unsigned and signed
// numbers, or at a common value.
func (m *rcRequesterMix) drawAttr(r *rand.Rand) requesterAttr {
	return requesterAttr{
		mtu:      pick(r, []verbs.MTU{verbs.MTU256, verbs.MTU256, verbs.MTU512, verbs.MTU1024}),
		psn:      pick(r, []ib.PSN{0, 0xfffffa, 0xffffe0, 0x7ffff8, 0x800000, firstDevicePSN}),
		rdAtomic: uint8(1 + r.IntN(4)), timeout: pick(r, m.timeouts),
		retries: pick(r, m.retries), rnrRetries: pick(r, m.rnrRetries), signalAll: r.IntN(8) == 0,
	}
}

// drawPost draws a request.
func (m *rcRequesterMix) drawPost(r *rand.Rand) requesterPost {
	p := requesterPost{op: pick(r, m.ops), mtus: r.IntN(5), pieces: 1 + r.IntN(3), value: r.Uint32()}
	if p.mtus == 0 || r.IntN(2) == 0 {
		p.mtus = r.IntN(2)
	}
	p.extra = pick(r, []int{0, 1, -1, 2, 3, 4, 8, 61})
	for flag, percent := range map[verbs.SendFlags]int{verbs.SendFence: 15, verbs.SendSignaled: 70, verbs.SendSolicited: 25, verbs.SendInline: 20} {
		if int(p.value>>(5*uint(flag)%24)%100) < percent {
			p.flags |= flag
		}
	}
	p.bad = m.invalidPosts && r.IntN(25) == 0
	return p
}
