package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// udCase returns the body of a case: dialogues of 32 random steps, drawn from a mix.
func udCase(dialogues int, s udSetup, mix ...choice[*udDialogue]) func(*conformance.Bench) error {
	return rig.Dialogue[dgStep[*udDialogue]]{Dialogues: dialogues, Steps: 32, Open: openUD(s, mix)}.Body()
}

// expectsModel is the expectation of all dialogues.
const expectsModel = "after each step the packets, completions, memory, events and states that the document permits"

// udIsolated makes queue pairs of the device survive errors of a peer, on a narrow path.
var udIsolated = conformance.Setup{Family: 6, MTU: 1500, Isolate: true}

var udDialogueCases = []conformance.Case{{
	ID: "dialogue/dg-ud/sends", Cite: cite("4", "dg/ud/1", "dg/ud/4", "dg/ud/5", "dg/ud/7", "dg/ud/8", "dg/pkt/6", "dg/pkt/7", "dg/addr/3", "dg/addr/5"), Setup: path1500,
	Title:   "Sends of several sources arrive as the document says, in random dialogues",
	Sends:   "Sends whole and in segments, in any order, twice, overlapping, with gaps and contradictions; damaged packets; receives",
	Expects: expectsModel,
	Defects: []string{"SegmentsInOrder"},
	Run: udCase(6, udSetup{ends: 1, least: 64},
		choice[*udDialogue]{4, "receives are posted", postReceives(64, 3000)},
		choice[*udDialogue]{4, "a Send in one segment", playSend},
		choice[*udDialogue]{4, "a Send in several segments, in any order", playSegments},
		choice[*udDialogue]{3, "a part of a Send", playPartOfSend},
		choice[*udDialogue]{5, "more segments of a Send", playMore},
		choice[*udDialogue]{1, "Sends of all sources with the same MSN, in turns", playSameNumber},
		choice[*udDialogue]{1, "a Send whose segments disagree", playContradiction},
		choice[*udDialogue]{1, "a packet that vanishes", playDamaged},
		choice[*udDialogue]{1, "a Send with reserved bits set", playReserved},
		choice[*udDialogue]{1, "a Write", playWrite},
		choice[*udDialogue]{1, "time passes", playWait},
	),
}, {
	ID: "dialogue/dg-ud/many-parts", Cite: cite("4", "dg/ud/5", "dg/ud/6", "dg/tag/6"), Setup: path1500,
	Title:   "Many incomplete messages are kept within the limits, in random dialogues",
	Sends:   "parts of many Sends and Write-Records, later the rest; pauses",
	Expects: expectsModel,
	Defects: []string{"PiecesUnbounded"},
	Run: udCase(5, udSetup{ends: 1, least: 64},
		choice[*udDialogue]{3, "receives are posted", postReceives(64, 300)},
		choice[*udDialogue]{3, "parts of many Sends", playManyParts},
		choice[*udDialogue]{8, "more segments of a message", playMore},
		choice[*udDialogue]{2, "parts of many Write-Records, or of one", playManyRecords},
		choice[*udDialogue]{1, "a Send in one segment", playSend},
		choice[*udDialogue]{1, "time passes", playWait},
	),
}, {
	ID: "dialogue/dg-ud/tagged", Cite: cite("5", "dg/tag/1", "dg/tag/3", "dg/tag/4", "dg/tag/5", "dg/tag/7"), Setup: path1500,
	Title:   "Writes and Write-Records are placed and reported as the document says, in random dialogues",
	Sends:   "Writes and Write-Records whole and in part, in any order, twice, overlapping, with gaps and contradictions; Sends; receives; pauses",
	Expects: expectsModel,
	Defects: []string{"RangesUnjoined", "RecordClaimsAll"},
	Run: udCase(6, udSetup{ends: 1, least: 64},
		choice[*udDialogue]{4, "receives are posted", postReceives(64, 200)},
		choice[*udDialogue]{4, "a Write", playWrite},
		choice[*udDialogue]{4, "a Write-Record", playRecord},
		choice[*udDialogue]{4, "a part of a Write-Record", playPartOfRecord},
		choice[*udDialogue]{6, "more segments of a message", playMore},
		choice[*udDialogue]{1, "a Write-Record whose segments disagree", playWrongRecord},
		choice[*udDialogue]{1, "a part of a Send", playPartOfSend},
		choice[*udDialogue]{1, "a Send in one segment", playSend},
		choice[*udDialogue]{2, "time passes", playWait},
	),
}, {
	ID: "dialogue/dg-ud/requests", Cite: cite("4", "dg/ud/1", "dg/ud/2", "dg/ud/4", "dg/ud/9", "dg/ud/10", "dg/tag/2", "dg/err/6", "dg/verbs/3"), Setup: conformance.Setup{Family: 4, MTU: 1500},
	Title:   "Requests are sent as the document says, in random dialogues",
	Sends:   "the application posts Sends, Writes and Writes with immediate data of all lengths, to several peers; these send messages and error messages",
	Expects: expectsModel,
	Defects: []string{"CutsAtRandom", "NumbersByPeer"},
	Run: udCase(5, udSetup{ends: 2, least: 64},
		choice[*udDialogue]{1, "receives are posted", postReceives(64, 1000)},
		choice[*udDialogue]{8, "requests are posted", playRequests},
		choice[*udDialogue]{1, "a request of another kind is posted", playRefused},
		choice[*udDialogue]{1, "a Send in one segment", playSend},
		choice[*udDialogue]{1, "a Write", playWrite},
		choice[*udDialogue]{1, "an error message", playErrorMessage},
		choice[*udDialogue]{1, "a packet that vanishes", playDamaged},
	),
}, {
	ID: "dialogue/dg-ud/isolated-errors", Cite: cite("6", "dg/err/1", "dg/err/2", "dg/err/3", "dg/tag/8", "dg/ud/10", "dg/addr/2"), Level: conformance.Should,
	Setup:   udIsolated,
	Title:   "Wrong segments to an isolated queue pair are reported and stop nothing, in random dialogues",
	Sends:   "Sends, Writes and Write-Records, about one in four wrong; Sends are posted",
	Expects: expectsModel,
	Defects: []string{"IsolationIgnored", "FirstSegmentChecked"},
	Run: udCase(6, udSetup{ends: 1, isolated: true, least: 64},
		choice[*udDialogue]{3, "receives are posted", postReceives(64, 300)},
		choice[*udDialogue]{5, "a wrong segment", playError},
		choice[*udDialogue]{1, "a Send that is longer than the receive", playTooLong},
		choice[*udDialogue]{3, "a Send in several segments, in any order", playSegments},
		choice[*udDialogue]{1, "a part of a Send", playPartOfSend},
		choice[*udDialogue]{2, "more segments of a message", playMore},
		choice[*udDialogue]{3, "a Write", playWrite},
		choice[*udDialogue]{2, "a Write-Record", playRecord},
		choice[*udDialogue]{1, "an error message", playErrorMessage},
		choice[*udDialogue]{2, "Sends are posted", playSendRequests},
	),
}, {
	ID: "dialogue/dg-ud/errors", Cite: cite("6", "dg/err/1", "dg/err/3", "dg/err/8"), Setup: path1500,
	Title:   "A wrong segment moves its queue pair to the error state and leaves others alone, in random dialogues",
	Sends:   "Sends, Writes and Write-Records to three queue pairs, few of them wrong",
	Expects: expectsModel,
	Defects: []string{"ErrorsSilent", "ErrorQPGoesOn"},
	Run: udCase(5, udSetup{ends: 3, least: 64},
		choice[*udDialogue]{4, "receives are posted", postReceives(64, 300)},
		choice[*udDialogue]{1, "a wrong segment", playError},
		choice[*udDialogue]{1, "a Send that is longer than the receive", playTooLong},
		choice[*udDialogue]{3, "a Send in several segments, in any order", playSegments},
		choice[*udDialogue]{1, "a part of a Send", playPartOfSend},
		choice[*udDialogue]{2, "more segments of a message", playMore},
		choice[*udDialogue]{3, "a Write", playWrite},
		choice[*udDialogue]{3, "a part of a Write-Record", playPartOfRecord},
		choice[*udDialogue]{2, "Sends are posted", playSendRequests},
	),
}, {
	ID: "dialogue/dg-ud/groups", Cite: cite("3", "dg/addr/1", "dg/addr/6", "dg/addr/7"), Setup: udIsolated, Needs: verbs.CapMulticast,
	Title:   "Packets to groups go to the attached queue pairs, in random dialogues",
	Sends:   "Sends and Writes to two groups and to three queue pairs, which are attached and detached; damaged and wrong packets",
	Expects: expectsModel,
	Defects: []string{"GroupsMixed"},
	Run: udCase(5, udSetup{ends: 3, isolated: true, least: 64},
		choice[*udDialogue]{4, "receives are posted", postReceives(64, 300)},
		choice[*udDialogue]{8, "a packet to a group, or a queue pair joins or leaves it", playGroup},
		choice[*udDialogue]{2, "a Send in one segment", playSend},
		choice[*udDialogue]{1, "a packet that vanishes", playDamaged},
		choice[*udDialogue]{1, "a Write", playWrite},
	),
}}
