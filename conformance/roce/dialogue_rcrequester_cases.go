package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// allSendOps are the opcodes of send requests. SENDs and WRITEs without a suffix are more frequent.
var allSendOps = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWrite, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm,
	verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpBindMW,
}

var (
	noTimeout  = []uint8{0}
	maxRetries = []uint8{7}
)

var rcRequesterDialogues = overRC.Cases([]conformance.Case{{
	ID: "dialogue/rc-requester/requests-and-acks", Cite: ibta("", "rc/psn/1", "rc/psn/2", "rc/psn/3", "rc/psn/13", "rc/psn/14", "rc/ack/4", "rc/ack/6", "rc/ack/7", "rc/ack/8", "rc/mtu/2", "rc/read/16", "cq/1", "cq/3", "cq/4"),
	Title:   "In random dialogues without losses the requester sends, completes and places what its model does",
	Sends:   "posts of all opcodes, sizes and flags; ACKs of single packets, of many and of parts of messages; READ and atomic responses; stale, unsent and damaged responses",
	Expects: "each request packet with all its fields, completions in order with all their fields, results in place, and nothing else",
	Defects: []string{"AckCoversOne", "AckInsideCompletes", "GhostAckCompletes", "FenceIgnored"},
	Run: onRequester(24, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: maxRetries, ops: allSendOps,
		abnormal: []*requesterStepKind{stepStale, stepGhost, stepDamaged, stepWait}, every: 5,
	}),
}, {
	ID: "dialogue/rc-requester/losses", Cite: ibta("", "rc/tmo/7", "rc/tmo/8", "rc/tmo/9", "rc/tmo/10", "rc/tmo/11", "rc/tmo/12", "rc/ack/5", "rc/read/8", "rc/read/10", "rc/read/11", "rc/seq/5"),
	Title:   "In random dialogues with losses the requester retransmits what its model does",
	Sends:   "posts of all opcodes, valid responses, sequence NAKs at any packet, ACKs after unanswered READs, READ responses after a gap",
	Expects: "retransmissions from the right packet on, with all fields as before; completions in order and results in place",
	Defects: []string{"RetryRestartsMessage", "ReadRetryFromStart", "NAKAcksNothing", "DuplicateNAKsResend"},
	Run: onRequester(24, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: maxRetries, ops: allSendOps,
		abnormal: []*requesterStepKind{stepNak, stepNak, stepAckPast, stepGap, stepStale, stepGhost}, every: 4,
	}),
}, {
	ID: "dialogue/rc-requester/rnr-naks", Cite: ibta("", "rc/rnr/5", "rc/rnr/6", "rc/rnr/7", "rc/rnr/8", "rc/rnr/9", "rc/rnr/11"),
	Title:   "In random dialogues with RNR NAKs the requester waits, retries and gives up as its model does",
	Sends:   "posts of all opcodes, valid responses, RNR NAKs at any SEND or WRITE with immediate, with all timers; sequence NAKs",
	Expects: "nothing before the RNR timer expires, then the refused packet and all after it; an error when rnr_retry is exhausted",
	Defects: []string{"RNRNoWait", "RNRInsideRestarts", "RNRRetry7IsSeven", "RetryOffByOne"},
	Run: onRequester(16, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: []uint8{0, 1, 2, 3, 6, 7, 7}, ops: allSendOps,
		abnormal: []*requesterStepKind{stepRNR, stepRNR, stepRNR, stepWait, stepNak, stepStale, stepGhost}, every: 3,
	}),
}, {
	ID: "dialogue/rc-requester/timeouts", Cite: ibta("", "rc/tmo/1", "rc/tmo/2", "rc/tmo/4", "rc/tmo/5", "rc/tmo/6", "rc/rnr/8", "rc/tmo/14"),
	Title:   "In random dialogues with unanswered requests the requester retransmits and gives up as its model does",
	Sends:   "posts of all opcodes, valid responses, and none until the timer has expired; RNR and sequence NAKs, READ responses after a gap",
	Expects: "retransmissions not before the timeout and not after four times that; an error when retry_cnt is exhausted",
	Defects: []string{"NoTransportTimer", "RetryOffByOne", "RetryCountShared", "AdaptiveTimeout"},
	Run: onRequester(16, rcRequesterMix{
		timeouts: []uint8{12, 13}, retries: []uint8{0, 1, 2, 3, 7}, rnrRetries: []uint8{1, 3, 7}, ops: allSendOps,
		abnormal: []*requesterStepKind{stepWait, stepWait, stepWait, stepWait, stepWait, stepGiveUp, stepRNR, stepNak, stepGap, stepAckPast}, every: 3,
	}),
}, {
	ID: "dialogue/rc-requester/errors", Cite: ibta("", "rc/ack/9", "rc/ack/12", "rc/ack/13", "rc/ack/15", "rc/read/13", "rc/read/14", "rc/read/19", "rc/read/20", "err/1", "err/2", "err/3", "err/5", "qp/7", "qp/8"),
	Title:   "In random dialogues with errors the requester fails and flushes the requests that its model does",
	Sends:   "posts of all opcodes, some of them invalid, valid responses, fatal NAKs, responses of the wrong kind or length or with a reserved syndrome; moves to ERR",
	Expects: "the status of the error for the request that failed, success for those before it, a flush for those after it, the queue pair in ERR, and no packet from then on",
	Defects: []string{"NAKFlushesAll", "NAKKeepsRTS", "BadRespSucceeds", "FlushReversed"},
	Run: onRequester(32, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: maxRetries, ops: allSendOps, invalidPosts: true,
		abnormal: []*requesterStepKind{stepFatal, stepOdd, stepBad, stepBad, stepBad, stepToErr, stepStale, stepGhost, stepDamaged}, every: 9,
	}),
}, {
	ID: "dialogue/rc-requester/drained-send-queue", Cite: ibta("", "sqd/1", "sqd/3", "sqd/4"),
	Title:   "In random dialogues the requester in SQD finishes the requests on the wire, begins no other, and resumes in RTS, as its model does",
	Sends:   "posts of all opcodes, valid responses and NAKs; moves to SQD and back to RTS",
	Expects: "no new request in SQD, a refusal of RTS while requests are outstanding, the waiting requests after RTS",
	Defects: []string{"SQDIgnored"},
	Run: onRequester(8, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: maxRetries, ops: allSendOps,
		abnormal: []*requesterStepKind{stepDrain, stepResume, stepResume, stepNak, stepRNR}, every: 3,
	}),
}, {
	ID: "dialogue/rc-requester/credits", Cite: ibta("", "rc/credit/2", "rc/credit/3"), Needs: verbs.CapCredits,
	Title:   "In random dialogues with credits the requester sends no more messages that use a receive than its model does",
	Sends:   "posts of all opcodes, valid responses and repeated ACKs with credits for at most four messages, sequence NAKs",
	Expects: "all requests that have a credit or need none, and at most one packet of a request without a credit",
	Defects: []string{"NoCreditHeeding", "CreditsBlockAll"},
	Run: onRequester(16, rcRequesterMix{
		timeouts: noTimeout, retries: maxRetries, rnrRetries: maxRetries, ops: allSendOps, credits: true,
		abnormal: []*requesterStepKind{stepStale, stepNak, stepGap, stepGhost}, every: 4,
	}),
}})
