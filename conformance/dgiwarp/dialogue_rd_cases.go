package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// rdCase returns the body of a case: dialogues of 24 random steps, drawn from a mix. stepsAck says
// that steps acknowledge the packets of the device.
func rdCase(dialogues int, stepsAck bool, mix ...choice[*rdDialogue]) func(*conformance.Bench) error {
	return rig.Dialogue[dgStep[*rdDialogue]]{Dialogues: dialogues, Steps: 24, Open: openRD(stepsAck, mix)}.Body()
}

var rdDialogueCases = conformance.Group{Setup: setupNarrowRD}.Cases([]conformance.Case{{
	ID: "dialogue/dg-rd/delivery", Cite: cite("7.2", "dg/ack/1", "dg/ack/4", "dg/rdmap/2", "dg/rdmap/3", "dg/cc/3", "dg/loss/1"),
	Title:   "Messages of all kinds in flows are executed and acknowledged, in random dialogues",
	Sends:   "Sends, immediate data, Writes, Read and Atomic Requests of three peers, in order, one by one and in bursts; receives",
	Expects: expectsModel,
	Defects: []string{"EchoLatest"},
	Run: rdCase(5, false,
		choice[*rdDialogue]{4, "receives are posted", playRDReceives},
		choice[*rdDialogue]{6, "messages in order", playInOrder},
		choice[*rdDialogue]{2, "a burst of Writes", playBurst},
		choice[*rdDialogue]{1, "packets again", playRepeats},
		choice[*rdDialogue]{1, "a packet that vanishes", playRDDamaged},
	),
}, {
	ID: "dialogue/dg-rd/gaps", Cite: cite("7.2", "dg/ack/1", "dg/ack/2", "dg/ack/3", "dg/ack/4", "dg/loss/1"),
	Title:   "Lost, reordered and repeated packets of flows are acknowledged and delivered in order, in random dialogues",
	Sends:   "messages of three peers of which packets are lost, late, repeated or beyond the window",
	Expects: expectsModel,
	Defects: []string{"DeliversAsTheyCome", "GapsForgotten"},
	Run: rdCase(5, false,
		choice[*rdDialogue]{4, "receives are posted", playRDReceives},
		choice[*rdDialogue]{4, "messages of which packets are lost", playLosses},
		choice[*rdDialogue]{3, "missing packets in any order", playReordered},
		choice[*rdDialogue]{2, "messages in order, after what is missing", playInOrder},
		choice[*rdDialogue]{2, "packets again", playRepeats},
		choice[*rdDialogue]{1, "a packet beyond the window", playBeyond},
		choice[*rdDialogue]{1, "a burst far behind a gap", playFarAhead},
		choice[*rdDialogue]{1, "a packet that vanishes", playRDDamaged},
	),
}, {
	ID: "dialogue/dg-rd/flows", Cite: cite("7.1", "dg/start/4", "dg/start/7", "dg/start/11", "dg/start/12", "dg/rdmap/1", "dg/rdmap/4", "dg/busy/1", "dg/busy/3", "dg/verbs/4"),
	Title:   "Flows start, are replaced, refused and wait for receives as the document says, in random dialogues",
	Sends:   "messages of three peers, starts of new flows, packets of unknown ones, Sends without receives, Refusals",
	Expects: expectsModel,
	Defects: []string{"OldFlowKept"},
	Run: rdCase(8, false,
		choice[*rdDialogue]{2, "receives are posted", playRDReceives},
		choice[*rdDialogue]{3, "messages of which packets are lost", playLosses},
		choice[*rdDialogue]{3, "messages in order, after what is missing", playInOrder},
		choice[*rdDialogue]{2, "a Send without a receive", playBusy},
		choice[*rdDialogue]{2, "a packet of an unknown flow", playUnknownFlow},
		choice[*rdDialogue]{2, "a new flow of a peer", playRestart},
	),
}, {
	ID: "dialogue/dg-rd/requests", Cite: cite("7.2", "dg/ack/5", "dg/ack/6", "dg/ack/8", "dg/rdmap/2", "dg/verbs/3"),
	Title:   "Requests are sent in flows and complete when they are acknowledged or answered, in random dialogues",
	Sends:   "Acks and responses to requests of all kinds, which the application posts; messages",
	Expects: expectsModel,
	Defects: []string{"RDCompletesAtOnce"},
	Run: rdCase(5, false,
		choice[*rdDialogue]{2, "receives are posted", playRDReceives},
		choice[*rdDialogue]{6, "requests are posted", playRDRequests},
		choice[*rdDialogue]{4, "a response to a read or atomic", playAnswer},
		choice[*rdDialogue]{2, "messages in order", playInOrder},
		choice[*rdDialogue]{4, "a message of the peer and a request at the same time", playExchange},
		choice[*rdDialogue]{1, "a burst far behind a gap", playFarAhead},
		choice[*rdDialogue]{1, "an Ack that is ignored", playFalseAck},
	),
}, {
	ID: "dialogue/dg-rd/acks", Cite: cite("7.2", "dg/ack/2", "dg/ack/6", "dg/ack/7", "dg/ack/8", "dg/loss/3", "dg/loss/4", "dg/start/11", "dg/verbs/4"),
	Title:   "Packets are retransmitted until they are acknowledged, in random dialogues",
	Sends:   "Acks of all, of some and of none of the packets of requests; SACKs, false Acks, Refusals, pauses",
	Expects: expectsModel,
	Defects: []string{"GhostAckTaken", "TimeoutLosesOne"},
	Run: rdCase(12, true,
		choice[*rdDialogue]{6, "requests are posted", playRDRequests},
		choice[*rdDialogue]{1, "many requests are posted", playManyRequests},
		choice[*rdDialogue]{6, "an Ack", playAck},
		choice[*rdDialogue]{4, "a response to a read or atomic", playAnswer},
		choice[*rdDialogue]{4, "an Ack that is ignored", playFalseAck},
		choice[*rdDialogue]{2, "no Ack for a while", playSilence},
		choice[*rdDialogue]{1, "messages in order", playInOrder},
		choice[*rdDialogue]{2, "a Refusal of the device's flow", playRefusal},
	),
}, {
	ID: "dialogue/dg-rd/isolated-errors", Cite: cite("6", "dg/err/1", "dg/err/2", "dg/err/3"), Level: conformance.Should,
	Setup:   conformance.Setup{Family: 6, MTU: 1500, Reliable: true, Isolate: true},
	Title:   "Wrong segments end the flow that they are in and no other, in random dialogues",
	Sends:   "messages of three peers, few of them wrong; requests are posted",
	Expects: expectsModel,
	Defects: []string{"IsolationIgnored"},
	Run: rdCase(5, false,
		choice[*rdDialogue]{3, "receives are posted", playRDReceives},
		choice[*rdDialogue]{2, "a wrong segment", playRDError},
		choice[*rdDialogue]{4, "messages in order", playInOrder},
		choice[*rdDialogue]{2, "messages of which packets are lost", playLosses},
		choice[*rdDialogue]{2, "requests are posted", playRDRequests},
		choice[*rdDialogue]{2, "a response to a read or atomic", playAnswer},
	),
}})
