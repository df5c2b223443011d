package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// onDialogues makes the body of a case that holds dialogues of a mix.
func onDialogues(dialogues, steps int, mix dialogueMix) func(*conformance.Bench) error {
	return rig.Dialogue[dialogueStep]{Dialogues: dialogues, Steps: steps, Open: openDialogue(&mix)}.Body()
}

// sinkSteps and sourceSteps are valid steps of the peer and of the application.
var (
	sinkSteps = []weightedStep{
		{12, drawMessages}, {3, drawReceives}, {2, drawMemoryChange}, {2, drawWindow}, {2, drawArm},
	}
	sourceSteps = []weightedStep{
		{8, drawRequests}, {7, drawAnswers}, {2, drawMessages}, {1, drawReceives}, {1, drawMemoryChange},
	}
)

// sinkFaults are steps with invalid messages of the peer.
var sinkFaults = []weightedStep{{6, drawFault}, {5, drawAddressFault}, {3, drawReceiveFault}, {1, drawBadReceive}}

// withFaults returns steps with additional ones.
func withFaults(steps []weightedStep, more ...weightedStep) []weightedStep {
	return append(more, steps...)
}

const (
	dialogueExpects = "after every step the messages, completions, events and memory that a model of the RFCs permits"
	sinkSends       = "random dialogues: Sends of all kinds, immediate data, Writes, Read Requests and atomics in any segments; the application posts receives and binds windows"
	sourceSends     = "random dialogues: the application posts Sends, Writes, reads and atomics; the peer answers in any segments"
)

var dialogueCases = []conformance.Case{{
	ID: "dialogue/iwarp-sink/messages", Cite: cite("rfc5041/5.4/1", "rfc5041/5.3/4", "rfc5040/5.2.1/6", "rfc5040/5.5/3"),
	Title: "Messages of the peer are placed, delivered and answered as specified",
	Sends: sinkSends, Expects: dialogueExpects, Defects: []string{"LongDeliveredLate", "DeliversFirstSegment", "SmallReadsFirst", "WritesPlacedLate", "ZeroLengthChecked"},
	Run: onDialogues(20, 25, dialogueMix{steps: sinkSteps}),
}, {
	ID: "dialogue/iwarp-sink/plain-messages", Cite: cite("rfc5041/5.4/1", "rfc5041/5.3/4", "rfc5040/5.2.1/6", "rfc5040/5.5/3"),
	Title: "Messages of the peer are placed, delivered and answered as specified, one at a time, on a connection without markers",
	Sends: sinkSends, Expects: dialogueExpects + "; any pad", Defects: []string{"LongDeliveredLate", "AtomicReturnsNew"},
	Run: onDialogues(6, 20, dialogueMix{plain: true, noMarkers: true, anyPad: true, steps: []weightedStep{{12, drawMessages}, {3, drawReceives}, {2, drawMemoryChange}}}),
}, {
	ID: "dialogue/iwarp-sink/frames", Cite: cite("rfc5044/5.1/3", "rfc5044/4.3/9", "rfc5044/4.4/9", "rfc5044/8/1"), Setup: setupMarkers,
	Title: "FPDUs with markers and CRCs are received as specified, however TCP cuts them",
	Sends: sinkSends + "; wrong CRCs and markers", Expects: dialogueExpects, Defects: []string{"MarkersUnchecked", "CRCIgnored", "Resynchronises", "MarkersKept", "HeaderInOneRead"},
	Run: onDialogues(25, 12, dialogueMix{steps: withFaults(sinkSteps, weightedStep{2, drawFrameFault})}),
}, {
	ID: "dialogue/iwarp-sink/refusals", Cite: cite("rfc5041/7.1/11", "rfc5041/7.2/1", "rfc5040/7.2/1", "rfc5040/7.2/2", "rfc5040/7.2/4", "rfc5040/7.1/1"),
	Title: "Invalid segments end the stream with a Terminate that has the right cause",
	Sends: sinkSends + "; some are wrong in one field or address", Expects: dialogueExpects, Defects: []string{"UntaggedUnchecked", "VersionsUnchecked", "BadSegmentsDropped", "PageBounds", "CodesShifted"},
	Run: onDialogues(150, 7, dialogueMix{noMarkers: true, anyPad: true, steps: withFaults(sinkSteps, sinkFaults...)}),
}, {
	ID: "dialogue/iwarp-sink/reports", Cite: cite("rfc5040/4.8/5", "rfc5041/7.1/13", "rfc5040/7.1/3", "rfc5040/7.1/4"), Level: conformance.Should,
	Title: "The Terminate for an invalid segment quotes it",
	Sends: sinkSends + "; some are wrong in one field or address", Expects: dialogueExpects + "; in a Terminate, what RFC 5040 lists for its cause", Defects: []string{"TermHeaderStale", "TermPayloadLength", "TermAllHeaders", "TermBareOperation"},
	Run: onDialogues(90, 6, dialogueMix{exactReports: true, noMarkers: true, anyPad: true, steps: withFaults(sinkSteps, append(sinkFaults, weightedStep{1, drawLocalFault}, weightedStep{2, drawRequests}, weightedStep{3, drawWrongAnswer})...)}),
}, {
	ID: "dialogue/iwarp-source/requests", Cite: cite("rfc5041/5.2/1", "rfc5041/5.3/1", "rfc5040/5.5/6", "rfc5040/6.1/2"), Setup: setupMSS(1460),
	Title: "Requests of the application are sent, answered and completed as specified",
	Sends: sourceSends, Expects: dialogueExpects, Defects: []string{"SendsOvertake", "FenceIgnored", "AtomicsApart", "WritePerSGE", "SegmentsCounted"},
	Run: onDialogues(16, 30, dialogueMix{steps: sourceSteps}),
}, {
	ID: "dialogue/iwarp-source/without-crc", Cite: cite("rfc5044/4.1/6", "rfc5044/4.4/4", "rfc5041/5.2/1"), Setup: setupNoCRC,
	Title: "Requests of the application are sent, answered and completed as specified, with and without CRCs",
	Sends: sourceSends, Expects: dialogueExpects, Defects: []string{"CRCAlwaysChecked", "CRCFieldOmitted", "CRCNeedsBoth"},
	Run: onDialogues(8, 20, dialogueMix{steps: withFaults(sourceSteps, weightedStep{1, drawFrameFault})}),
}, {
	ID: "dialogue/iwarp-source/failures", Cite: cite("rfc5040/6.2.1/2", "rfc5040/5.4/5", "rfc5040/5.2.2/6", "rfc7306/5.2.2/3"),
	Title: "Wrong responses, Terminates and the end of the stream fail the outstanding work",
	Sends: sourceSends + "; some responses are wrong, or the peer ends the stream", Expects: dialogueExpects, Defects: []string{"AtomicResponseUnchecked", "FlushForgets", "FlushReversed"},
	Run: onDialogues(90, 10, dialogueMix{noMarkers: true, anyPad: true, steps: withFaults(sourceSteps, weightedStep{3, drawWrongAnswer}, weightedStep{1, drawUnsolicited},
		weightedStep{1, drawTerminate}, weightedStep{2, drawStreamEnd}, weightedStep{2, drawLocalFault}, weightedStep{1, drawDisconnect}, weightedStep{1, drawErrorState})}),
}}
