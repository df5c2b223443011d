package roce

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// requesterStep is a step of a dialogue with the requester of an RC queue pair.
type requesterStep struct {
	kind  *requesterStepKind
	attr  requesterAttr   // attributes of the connection that stepConnect makes
	posts []requesterPost // requests that stepPost posts
	// n selects a PSN, relative to the outstanding ones, or a number of packets; code a timer, NAK
	// or syndrome; and variant a kind of packet.
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
	mtus   int    // length of the payload in path MTUs,
	extra  int    // plus this number of bytes, which may be negative
	pieces int    // number of elements of the scatter/gather list
	value  uint32 // random; immediate data, offsets and other fields are derived from it
	bad    bool   // a wrong L_Key, a bind of a bound window or an invalidate of a free one
}

// requesterStepKind is a kind of step.
type requesterStepKind struct {
	// text says what the step does, with %[1]d for n, %[2]d for code and %[3]s for the variant.
	text     string
	variants []string
	play     func(*rcRequesterSession, *requesterStep)
}

// String describes the step, for the record of a dialogue. The text of some kinds of steps is a
// format for the numbers of the step.
func (s requesterStep) String() string {
	switch {
	case s.kind == stepConnect:
		return fmt.Sprintf("connect with %+v", s.attr)
	case s.kind == stepPost:
		var all []string
		for _, p := range s.posts {
			all = append(all, p.String())
		}
		return "post " + strings.Join(all, ", ")
	case !strings.Contains(s.kind.text, "%"):
		return s.kind.text
	}
	variant := ""
	if n := len(s.kind.variants); n > 0 {
		variant = s.kind.variants[s.variant%n]
	}
	return fmt.Sprintf(s.kind.text, s.n, s.code, variant)
}

// String describes the work request to post, for the record of a dialogue.
func (p requesterPost) String() string {
	s := strings.TrimPrefix(p.op.String(), "IBV_WR_")
	switch p.op {
	case verbs.OpBindMW:
		s = "bind or local invalidate"
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
	default:
		s += fmt.Sprintf(" of %d MTU %+d bytes in %d pieces", p.mtus, p.extra, p.pieces)
	}
	for i, name := range []string{"fenced", "signaled", "solicited", "inline"} {
		if p.flags>>i&1 != 0 {
			s += " " + name
		}
	}
	if p.bad {
		s += " invalid"
	}
	return s
}

// Kinds of steps. Numbers of packets and PSNs are reduced modulo the number of possible ones.
var (
	stepConnect  = &requesterStepKind{text: "connect", play: func(*rcRequesterSession, *requesterStep) {}}
	stepPost     = &requesterStepKind{text: "post", play: (*rcRequesterSession).playPost}
	stepRespond  = &requesterStepKind{"valid ACK or responses, choice %[1]d, %[2]d: %[3]s", names(validForms), (*rcRequesterSession).playRespond}
	stepStale    = &requesterStepKind{"%[3]s, code %[2]d, with a PSN %[1]d before the newest acknowledged one", names(strayResponses), (*rcRequesterSession).playStale}
	stepUnsent   = &requesterStepKind{"%[3]s, code %[2]d, with a PSN %[1]d after the newest sent one", names(strayResponses), (*rcRequesterSession).playUnsent}
	stepAckPast  = &requesterStepKind{"ACK at or after the first unanswered READ or atomic, choice %[1]d", nil, (*rcRequesterSession).playAckPast}
	stepNak      = &requesterStepKind{"sequence NAK at outstanding packet %[1]d%[3]s", []string{"", ", in two copies", ", in three copies"}, (*rcRequesterSession).playNak}
	stepRNR      = &requesterStepKind{"RNR NAK at outstanding packet %[1]d with timer %[2]d", nil, (*rcRequesterSession).playRNR}
	stepRefuse   = &requesterStepKind{"RNR NAKs to the oldest request until the device gives up, nine at most, choice %[1]d, %[2]d", nil, (*rcRequesterSession).playRefuse}
	stepAgain    = &requesterStepKind{text: "sequence NAK at the oldest packet, before and after a timeout", play: (*rcRequesterSession).playNakAgain}
	stepCredits  = &requesterStepKind{text: "the last ACK again with other credits", play: (*rcRequesterSession).playCredits}
	stepGap      = &requesterStepKind{"READ response after a gap, choice %[1]d", nil, (*rcRequesterSession).playGap}
	stepFatal    = &requesterStepKind{"fatal NAK at outstanding packet %[1]d, choice %[2]d", nil, (*rcRequesterSession).playFatal}
	stepReserved = &requesterStepKind{"ACK with a reserved syndrome, choice %[2]d", nil, (*rcRequesterSession).playReserved}
	stepBad      = &requesterStepKind{"invalid response to the oldest request: %[3]s", names(badAnswers), (*rcRequesterSession).playBadAnswer}
	stepDamaged  = &requesterStepKind{"ACK of everything, to be dropped: %[3]s", names(damages), (*rcRequesterSession).playDamaged}
	stepWait     = &requesterStepKind{text: "wait for a timer", play: (*rcRequesterSession).playWait}
	stepGiveUp   = &requesterStepKind{"no valid response until the device gives up, choice %[2]d", nil, (*rcRequesterSession).playGiveUp}
	stepReset    = &requesterStepKind{text: "move the queue pair to RESET and connect it again", play: (*rcRequesterSession).playReset}
	stepToErr    = &requesterStepKind{text: "move the queue pair to ERR", play: (*rcRequesterSession).playToErr}
	stepDrain    = &requesterStepKind{text: "move the queue pair to SQD", play: (*rcRequesterSession).playDrain}
	stepModify   = &requesterStepKind{"other attributes of the queue pair in SQD, choice %[1]d, %[2]d", nil, (*rcRequesterSession).playModify}
	stepResume   = &requesterStepKind{text: "move the queue pair from SQD to RTS", play: (*rcRequesterSession).playResume}
)

// variant is a variant of a packet, with its name.
type variant[F any] struct {
	name string
	make F
}

// names returns the names of the variants.
func names[F any](all []variant[F]) (names []string) {
	for _, v := range all {
		names = append(names, v.name)
	}
	return names
}

// Draw returns a random step: first a connect; then abnormal steps of the mix, one in s.mix.every,
// posts while few packets are outstanding, and responses. Each kind of step derives its choices,
// such as a PSN, from the random n, code and variant. Some abnormal steps get a large n: a PSN far
// away.
func (s *rcRequesterSession) Draw(r *rand.Rand) requesterStep {
	if s.conn == nil {
		return requesterStep{kind: stepConnect, attr: s.mix.drawAttr(r)}
	}
	_, n := s.model.Outstanding()
	step := requesterStep{n: r.IntN(64), code: r.IntN(32), variant: r.IntN(64)}
	switch {
	case r.IntN(s.mix.every) == 0:
		step.kind = rig.Pick(r, s.mix.abnormal...)
		if step.kind == stepRNR {
			step.code = int(pickOr(r, s.mix.rnrTimers, uint8(step.code)))
		}
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

// pickOr returns a random element, or def if there is none.
func pickOr[T any](r *rand.Rand, all []T, def T) T {
	if len(all) == 0 {
		return def
	}
	return rig.Pick(r, all...)
}

// drawAttr draws the attributes of a connection. Most first PSNs are near 2^24 or 2^23, where PSNs
// wrap or their differences change sign.
func (m *rcRequesterMix) drawAttr(r *rand.Rand) requesterAttr {
	rdAtomics := []uint8{1, 2, 4}
	if m.strict {
		rdAtomics = []uint8{1, 2, 3, 5} // some devices round them up to powers of two
	}
	return requesterAttr{
		mtu:      rig.Pick(r, []verbs.MTU{verbs.MTU256, verbs.MTU256, verbs.MTU512, verbs.MTU1024}...),
		psn:      rig.Pick(r, []ib.PSN{0, 0xfffffa, 0xffffe0, 0x7ffff8, 0x800000, firstDevicePSN}...),
		rdAtomic: rig.Pick(r, rdAtomics...), timeout: pickOr(r, m.timeouts, 0),
		retries: pickOr(r, m.retries, 7), rnrRetries: pickOr(r, m.rnrRetries, 7), signalAll: r.IntN(8) == 0,
	}
}

// drawPost draws a request: most have up to four path MTUs, some up to eight.
func (m *rcRequesterMix) drawPost(r *rand.Rand) requesterPost {
	ops := m.ops
	if ops == nil {
		ops = allSendOps
	}
	p := requesterPost{op: rig.Pick(r, ops...), mtus: r.IntN(5), pieces: 1 + r.IntN(3), value: r.Uint32()}
	if p.mtus == 0 || r.IntN(2) == 0 {
		p.mtus = r.IntN(2)
	}
	p.extra = rig.Pick(r, []int{0, 1, -1, 2, 3, 4, 8, 61}...)
	if r.IntN(12) == 0 {
		p.mtus = 5 + r.IntN(4)
	}
	for i, percent := range []int{15, 70, 25, 20} { // fence, signaled, solicited, inline
		if r.IntN(100) < percent {
			p.flags |= verbs.SendFence << i
		}
	}
	p.bad = m.invalidPosts && r.IntN(25) == 0
	return p
}
