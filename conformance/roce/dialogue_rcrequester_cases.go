package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// allSendOps are the opcodes of send requests; more frequent ones are repeated. A bind becomes a
// local invalidate if the window is bound.
var allSendOps = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWrite, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm,
	verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpBindMW,
}

var mostlyReads = []verbs.WROpcode{
	verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpSend, verbs.OpRDMAWriteImm,
}

var mostlyFlushes = []verbs.WROpcode{
	verbs.OpFlush, verbs.OpFlush, verbs.OpAtomicWrite, verbs.OpAtomicWrite, verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpSend, verbs.OpRDMAWrite,
}

// someRNRTimers are timer codes of RNR NAKs without 25, for which some devices wait too short.
var someRNRTimers = []uint8{0, 1, 2, 5, 7, 9, 12, 14, 15, 18, 20, 22, 24, 27, 30, 31}

var rcRequesterDialogues = overRC.Cases([]conformance.Case{{
	ID: "dialogue/rc-requester/requests-and-acks",
	Cite: ibta("CA17-25", "rc/psn/1", "rc/psn/2", "rc/psn/3", "rc/psn/16", "rc/ack/4", "rc/ack/6", "rc/ack/7", "rc/ack/8", "rc/mtu/2",
		"rc/wr/1", "rc/imm/1", "rc/atm/11", "rc/read/16", "bth/se/1", "cq/1", "cq/3", "cq/4"),
	Title:   "In random dialogues without losses the requester sends, completes and places what its model does",
	Sends:   "posts of all opcodes, sizes and flags; ACKs of single packets, of many and of parts of messages; READ and atomic responses; ACKs that are damaged or of another connection",
	Expects: "each request packet with all its fields, completions in order with all their fields, results in place, and nothing else",
	Defects: []string{"AckCoversOne", "AckInsideCompletes", "FenceIgnored", "SGEsReversed"},
	Run:     onRequester(20, rcRequesterMix{abnormal: []*requesterStepKind{stepDamaged, stepWait}, every: 8}),
}, {
	ID:      "dialogue/rc-requester/stray-responses",
	Cite:    ibta("", "rc/psn/13", "rc/atm/12", "rc/read/16"),
	Title:   "In random dialogues the requester ignores responses with PSNs that are not outstanding, as its model does",
	Sends:   "posts of all opcodes and valid responses; responses of all kinds with PSNs that are acknowledged or were never sent, also between retries; RNR NAKs, or no responses",
	Expects: "no effect of the stray responses, on counts of retries either; all else as without them",
	Defects: []string{"GhostAckCompletes", "OldAnswerCompletes", "RdAtomicRoundsUp"},
	Run: onRequester(44, rcRequesterMix{
		timeouts: []uint8{0, 0, 13}, retries: []uint8{1, 3, 7}, rnrRetries: []uint8{1, 2, 7},
		abnormal: []*requesterStepKind{stepStale, stepStale, stepStale, stepUnsent, stepUnsent, stepRNR, stepRefuse, stepGiveUp, stepReset}, every: 3, strict: true,
	}),
}, {
	ID:      "dialogue/rc-requester/losses",
	Cite:    ibta("", "rc/tmo/7", "rc/tmo/8", "rc/tmo/10", "rc/tmo/11", "rc/tmo/12", "rc/read/8", "rc/read/10", "rc/read/11", "rc/seq/5"),
	Title:   "In random dialogues with losses the requester retransmits what its model does",
	Sends:   "posts of all opcodes, valid responses, sequence NAKs at any packet, READ responses after a gap",
	Expects: "retransmissions from the right packet on, with all fields as before; completions in order and results in place",
	Defects: []string{"RetryRestartsMessage", "ReadRetryFromStart", "NAKAcksNothing", "DuplicateNAKsResend"},
	Run:     onRequester(32, rcRequesterMix{abnormal: []*requesterStepKind{stepNak, stepNak, stepGap}, every: 4}),
}, {
	ID: "dialogue/rc-requester/repeated-losses", Level: conformance.Should,
	Cite:    ibta("", "rc/tmo/9", "rc/ack/9"),
	Title:   "In random dialogues with several losses in a window the requester retransmits at once, as its model does",
	Sends:   "posts of all opcodes, valid responses, sequence NAKs at any packet, ACKs after unanswered READs and atomics, READ responses after a gap",
	Expects: "a retransmission for every NAK that acknowledges something, and for every lost response that an ACK shows",
	Defects: []string{"IgnoreSecondNAK", "AckCompletesRead", "AckSkipsRead", "NAKAfterTimeoutIgnored"},
	Run: onRequester(20, rcRequesterMix{
		timeouts: []uint8{0, 13}, abnormal: []*requesterStepKind{stepNak, stepNak, stepAckPast, stepGap, stepStale, stepAgain}, every: 3, strict: true,
	}),
}, {
	ID:      "dialogue/rc-requester/rnr-naks",
	Cite:    ibta("V1C09-130#01", "rc/rnr/5", "rc/rnr/6", "rc/rnr/7", "rc/rnr/8", "rc/rnr/9", "rc/rnr/11"),
	Title:   "In random dialogues with RNR NAKs the requester waits, retries and gives up as its model does",
	Sends:   "posts of all opcodes, valid responses, RNR NAKs at any SEND or WRITE with immediate; sequence NAKs",
	Expects: "nothing before the RNR timer expires, then the refused packet and all after it; an error when rnr_retry is exhausted",
	Defects: []string{"RNRNoWait", "RNRInsideRestarts", "RNRExcIsRetryExc", "RNRRetry7IsSeven"},
	Run: onRequester(20, rcRequesterMix{
		rnrRetries: []uint8{0, 1, 2, 3, 6, 7, 7}, rnrTimers: someRNRTimers,
		abnormal: []*requesterStepKind{stepRNR, stepRNR, stepRNR, stepRNR, stepRefuse, stepWait, stepNak}, every: 3,
	}),
}, {
	ID:      "dialogue/rc-requester/timeouts",
	Cite:    ibta("C9-139", "rc/tmo/1", "rc/tmo/2", "rc/tmo/4", "rc/tmo/6", "rc/rnr/8", "rc/tmo/14"),
	Title:   "In random dialogues with unanswered requests the requester retransmits and gives up as its model does",
	Sends:   "posts of all opcodes, valid responses, and none until the timer has expired; RNR and sequence NAKs, READ responses after a gap",
	Expects: "retransmissions not before the timeout and not after four times that; an error when retry_cnt is exhausted",
	Defects: []string{"NoTransportTimer", "RetryOffByOne", "RetryCountShared", "AdaptiveTimeout"},
	Run: onRequester(20, rcRequesterMix{
		timeouts: []uint8{12, 13}, retries: []uint8{0, 1, 2, 3, 6}, rnrRetries: []uint8{1, 3, 7}, rnrTimers: []uint8{0, 7, 14, 27, 28, 30, 31},
		abnormal: []*requesterStepKind{stepWait, stepWait, stepWait, stepWait, stepWait, stepGiveUp, stepRNR, stepRefuse, stepNak, stepGap}, every: 3,
	}),
}, {
	ID:      "dialogue/rc-requester/errors",
	Cite:    ibta("", "rc/ack/15", "err/1", "err/5", "qp/7", "qp/8"),
	Title:   "In random dialogues with errors the requester fails and flushes the requests that its model does",
	Sends:   "posts of all opcodes, valid responses, fatal NAKs, or no responses; moves to ERR; connections after a RESET",
	Expects: "the status of the error for the request that failed, success for those before it, a flush for those after it, the queue pair in ERR, and no packet from then on",
	Defects: []string{"NAKFlushesAll", "NAKKeepsRTS", "FlushReversed"},
	Run: onRequester(24, rcRequesterMix{
		timeouts: []uint8{0, 13}, retries: []uint8{2, 6},
		abnormal: []*requesterStepKind{stepFatal, stepFatal, stepFatal, stepToErr, stepGiveUp, stepRNR, stepNak, stepReset, stepReset}, every: 7,
	}),
}, {
	ID:      "dialogue/rc-requester/local-errors",
	Cite:    ibta("", "err/2", "err/3", "rc/tmo/5"),
	Title:   "In random dialogues with invalid requests the requester fails and flushes the requests that its model does",
	Sends:   "posts of all opcodes, some with a wrong L_Key or a window in the wrong state, valid responses, fatal NAKs, or no responses with retry_cnt 7",
	Expects: "the status of the error for the request that failed, success for those before it, a flush for those after it",
	Defects: []string{"LocalErrFlushesAll", "RetryCount7Forever"},
	Run: onRequester(24, rcRequesterMix{
		timeouts: []uint8{0, 13}, invalidPosts: true,
		abnormal: []*requesterStepKind{stepFatal, stepGiveUp}, every: 9,
	}),
}, {
	ID:      "dialogue/rc-requester/invalid-responses",
	Cite:    ibta("V1C09-060#07", "rc/ack/9", "rc/ack/12", "rc/ack/13", "rc/read/13", "rc/read/20"),
	Title:   "In random dialogues with invalid responses the requester fails, retries or ignores them, as its model does",
	Sends:   "posts, mostly of READs and atomics, valid responses, responses of the wrong kind or length or with a reserved syndrome, ACKs of READs, fatal NAKs after some responses of a READ",
	Expects: "an error where the response is of the wrong kind or too long, else an error or a retry; no success, and no byte changed outside of the buffers",
	Defects: []string{"BadRespSucceeds", "NAKInReadSucceeds", "LongReadOverflows"},
	Run: onRequester(40, rcRequesterMix{
		timeouts: []uint8{0, 13}, ops: mostlyReads, nakInRead: true,
		abnormal: []*requesterStepKind{stepBad, stepBad, stepBad, stepBad, stepBad, stepReserved, stepFatal, stepAckPast, stepWait}, every: 4,
	}),
}, {
	ID: "dialogue/rc-requester/drained-send-queue", Cite: ibta("", "sqd/4"),
	Title:   "In random dialogues the requester in SQD finishes the requests on the wire, begins no other, and resumes in RTS, as its model does",
	Sends:   "posts of all opcodes, valid responses and NAKs; moves to SQD, other timeouts, retries, max_rd_atomic and traffic class there, and back to RTS",
	Expects: "no new request in SQD, SQ_DRAINED if it was asked for, a refusal of RTS while requests are outstanding, the waiting requests after RTS, and the new attributes in effect",
	Defects: []string{"SQDIgnored", "SQDNoResume", "NewTimeoutIgnored"},
	Run: onRequester(20, rcRequesterMix{
		timeouts: []uint8{0, 12, 13}, abnormal: []*requesterStepKind{stepDrain, stepDrain, stepModify, stepModify, stepResume, stepResume, stepResume, stepNak, stepRNR, stepWait, stepRefuse, stepRefuse}, every: 2,
	}),
}, {
	ID: "dialogue/rc-requester/credits", Cite: ibta("", "rc/credit/2", "rc/credit/3"), Needs: verbs.CapCredits,
	Title:   "In random dialogues with credits the requester sends no more messages that use a receive than its model does",
	Sends:   "posts of all opcodes, valid responses and repeated ACKs with credits for at most four messages or without a limit, sequence NAKs",
	Expects: "all requests that have a credit or need none, and at most one packet of a request without a credit",
	Defects: []string{"NoCreditHeeding", "CreditsBlockAll", "CreditsStayLimited"},
	Run:     onRequester(14, rcRequesterMix{abnormal: []*requesterStepKind{stepStale, stepNak, stepGap, stepUnsent, stepCredits, stepCredits, stepReset}, every: 4, credits: true}),
}, {
	ID: "dialogue/rc-requester/flush-and-atomic-write", Cite: annexA19("oA19-2, oA19-5, oA19-28", "rc/flush/2", "rc/atm/15"), Needs: verbs.CapFlush | verbs.CapAtomicWrite,
	Title:   "In random dialogues with FLUSH and ATOMIC WRITE the requester sends, retries and completes what its model does",
	Sends:   "posts of all opcodes, mostly FLUSH and ATOMIC WRITE, valid and invalid responses, ACKs of unanswered requests, sequence, RNR and fatal NAKs, or no responses",
	Expects: "the packets, completions and states of the model; FLUSH and ATOMIC WRITE complete by an empty READ response only",
	Defects: []string{"FlushICRCDoubled", "AckCompletesRead", "FlushAnswerUnchecked"},
	Run: onRequester(20, rcRequesterMix{
		timeouts: []uint8{0, 13}, ops: mostlyFlushes,
		abnormal: []*requesterStepKind{stepNak, stepAckPast, stepAckPast, stepStale, stepUnsent, stepBad, stepRNR, stepFatal, stepWait}, every: 4, strict: true,
	}),
}})
