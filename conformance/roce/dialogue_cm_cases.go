package roce

import (
	"maps"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// cmDialogueOf returns the body of a case that draws operations with the weights of both maps;
// those of more replace those of mix.
func cmDialogueOf(mix, more map[string]int) func(*conformance.Bench) error {
	all := maps.Clone(mix)
	maps.Copy(all, more)
	return rig.Dialogue[cmStep]{Dialogues: 7, Steps: 35, Open: openCMDialogue(all)}.Body()
}

// Weights of the operations by the role of the device.
var (
	cmPassive = map[string]int{
		"new REQ": 20, "take": 20, "accept": 60, "reject": 10, "RTU": 8, "message": 10, "DREQ": 3, "disconnect": 8, "DREP": 8, "REQ": 3,
		"refused REQ": 4, "time wait": 2,
	}
	cmActive = map[string]int{
		"connect": 30, "REP": 8, "message": 10, "DREQ": 3, "disconnect": 8, "DREP": 8, "time wait": 2,
	}
)

// cmSees is the Expects text of most cases.
const cmSees = "the messages with all their fields, the results of the verbs, and the attributes of the queue pairs, as in the model"

var cmDialogueCases = overCM.Cases([]conformance.Case{{
	ID: "dialogue/cm-passive/handshake", Cite: ibta("chapter 12", "cm/1", "cm/2", "cm/4", "cm/7", "cm/17", "cm/23"),
	Title:   "In random dialogues, the passive side accepts, rejects and ends connections like the model",
	Sends:   "REQs, RTUs, DREQs and DREPs of several connections, also twice; the application accepts, rejects and disconnects",
	Expects: cmSees,
	Defects: []string{"cm.DuplicateREQSecondConn", "ConnParamLost", "RemoteUnknown", "cm.PassiveAckTimeoutOwn"}, Run: cmDialogueOf(cmPassive, nil),
}, {
	ID: "dialogue/cm-passive/stray-messages", Cite: ibta("chapter 12", "cm/2", "cm/4", "cm/21"),
	Title:   "In random dialogues, the passive side ignores damaged and stray messages like the model",
	Sends:   "all messages in all states, some with other communication IDs, damaged, or with reserved fields set",
	Expects: cmSees,
	Defects: []string{"cm.DuplicateREQSecondConn", "cm.RejectZeroLID", "cm.AcceptAnyPrivateVersion"}, Run: cmDialogueOf(cmPassive, map[string]int{
		"REP": 2, "RTU": 5, "REJ": 2, "MRA": 2, "LAP": 1, "APR": 1, "other IDs": 30, "faults": 25,
	}),
}, {
	ID: "dialogue/cm-passive/lost-messages", Cite: ibta("chapter 12", "cm/3", "cm/19", "cm/20"),
	Title:   "In random dialogues, the passive side retransmits like the model",
	Sends:   "MRAs, or nothing, where an RTU or a DREP is due",
	Expects: "retransmissions of REPs and DREQs, at the times and as often as the REQ and the MRA say",
	Defects: []string{"cm.NoRetransmitREP"}, Run: cmDialogueOf(cmPassive, map[string]int{"RTU": 3, "wait": 40, "give up": 8, "MRA": 6, "DREQ": 1}),
}, {
	ID: "dialogue/cm-passive/lost-rtu", Cite: ibta("chapter 12", "cm/8", "qp/12"),
	Title:   "In random dialogues, the first message establishes a connection like the model",
	Sends:   "messages on connections whose RTU is late or lost",
	Expects: cmSees,
	Defects: []string{"cm.IgnoreCommEst"}, Run: cmDialogueOf(cmPassive, map[string]int{"first message": 30, "RTU": 3, "wait": 5}),
}, {
	ID: "dialogue/cm-passive/rejected", Cite: ibta("chapter 12", "cm/22", "cm/25"),
	Title:   "In random dialogues, a REJ of the peer ends a connection of the passive side like the model",
	Sends:   "REJs with all reasons in all states, also before the REP, and REQs that the device must reject",
	Expects: cmSees,
	Defects: []string{"cm.RejectWithoutCommID"}, Run: cmDialogueOf(cmPassive, map[string]int{"REJ": 10, "MRA": 3, "cancel": 10, "REQ": 9, "refused REQ": 20}),
}, {
	ID: "dialogue/cm-active/handshake", Cite: ibta("chapter 12", "cm/7", "cm/9", "cm/17", "cm/18", "cm/23", "cm/29"),
	Title:   "In random dialogues, the active side establishes and ends connections like the model",
	Sends:   "REPs, DREQs and DREPs for connections that the device requests, also twice",
	Expects: cmSees,
	Defects: []string{"cm.NoDREPWhenDisconnected", "PrivateDataLost", "DisconnectSilent", "cm.ReplyFlowControlLost"}, Run: cmDialogueOf(cmActive, nil),
}, {
	ID: "dialogue/cm-active/stray-messages", Cite: ibta("chapter 12", "cm/18", "cm/21"),
	Title:   "In random dialogues, the active side ignores damaged and stray messages like the model",
	Sends:   "all messages in all states, some with other communication IDs, damaged, or with reserved fields set; REQs meanwhile",
	Expects: cmSees,
	Defects: []string{"cm.NoDREPWhenDisconnected"}, Run: cmDialogueOf(cmActive, map[string]int{
		"RTU": 2, "REJ": 2, "MRA": 2, "LAP": 1, "APR": 1, "other IDs": 30, "faults": 25, "new REQ": 4, "take": 8, "accept": 20,
	}),
}, {
	ID: "dialogue/cm-active/lost-messages", Cite: ibta("chapter 12", "cm/19", "cm/20"),
	Title:   "In random dialogues, the active side retransmits like the model",
	Sends:   "MRAs, or nothing, where a REP or a DREP is due",
	Expects: "retransmissions of REQs and DREQs, at the times and as often as the REQ and the MRA say",
	Defects: []string{"cm.NoRetransmitREQ"}, Run: cmDialogueOf(cmActive, map[string]int{"wait": 60, "give up": 8, "MRA": 20, "DREQ": 1}),
}, {
	ID: "dialogue/cm-active/stale", Cite: ibta("12.9.8.3.1", "cm/24", "cm/19"),
	Title:   "In random dialogues, a REQ or REP for a queue pair that is connected ends the old connection like the model",
	Sends:   "REQs and REPs with the QPN of an established connection of either side; a DREP, or nothing, for the DREQ of the device",
	Expects: "a REJ with reason 10, and DREQs for the old connection until it is answered or the retries are spent; the application sees its end",
	Defects: []string{"cm.StaleConnectionLasts"}, Run: cmDialogueOf(cmActive, map[string]int{
		"stale REQ": 6, "stale REP": 60, "give up": 10, "new REQ": 6, "take": 8, "accept": 30, "RTU": 8, "REP": 10, "disconnect": 2, "DREP": 3,
	}),
}, {
	ID: "dialogue/cm-active/rejected", Cite: ibta("chapter 12", "cm/22"),
	Title:   "In random dialogues, a REJ of the peer ends a connection of the active side like the model",
	Sends:   "REJs with all reasons in all states",
	Expects: cmSees,
	Defects: []string{"RejectIsTimeout"}, Run: cmDialogueOf(cmActive, map[string]int{"REJ": 6, "MRA": 5}),
}, {
	ID: "dialogue/cm-sidr/both-sides", Cite: ibta("Tables 119, 120", "cm/11", "cm/17", "cm/25"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "In random dialogues, datagram services are resolved like the model",
	Sends:   "SIDR_REQs and SIDR_REPs, also twice, damaged, for unknown services and partitions, with unknown IDs and with those of answered requests; the application accepts, rejects and resolves",
	Expects: "the messages with all their fields, and the requests and results that the application gets",
	Defects: []string{"cm.SIDRZeroQKey", "cm.IgnoreUnknownService", "ResolvedKeyLost", "cm.SIDRPKeyUnchecked", "cm.SIDRAnswerIgnoresTID"},
	Run:     rig.Dialogue[cmStep]{Dialogues: 7, Steps: 35, Open: openSIDRDialogue}.Body(),
}})
