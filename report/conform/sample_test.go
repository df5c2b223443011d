package conform_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// sample is a run with all verdicts, all kinds of steps, all states of a requirement,
// and defects that are detected and that are not.
func sample() *conform.Run {
	r := &conform.Run{
		Version: 1, Tool: "v0.1.0", Command: "fabrictest conform --on sim --seed 7", Seed: 7, Started: time.Date(2025, 11, 15, 9, 30, 12, 0, time.UTC),
		Wall: 5120 * time.Millisecond, Machine: report.Machine{OS: "linux", Arch: "amd64", Kernel: "6.18.2", CPUs: 2}, Tier: "sim",
		Documents: documents(),
		Faults: []conform.Fault{
			{Kind: conform.Unsound, Device: "softroce", Case: "rc/psn/gap", What: "rc/psn/gap: fail on the device without defects: want one, got two"},
			{Kind: conform.Unproven, Device: "softroce", Case: "rc/psn/wrap", Defect: "PSNUnsigned", What: "rc/psn/wrap: pass with PSNUnsigned, which it must detect"},
			{Kind: conform.UnknownDefect, Case: "rc/psn/wrap", Defect: "Nonsense", What: "rc/psn/wrap must detect Nonsense, which no device has"},
			{Kind: conform.Uncaught, Device: "softroce", Defect: "LatePlacement", What: "no case detects LatePlacement: data arrives late"},
		},
	}
	roce := conform.Device{Name: "softroce", Title: "soft-RoCE", As: "rxe-6.12", Defects: []string{"AckPSNOff"}}
	for i, v := range []conform.Verdict{conform.Fail, conform.Pass, conform.Unsupported, conform.Deviates, conform.Stale, conform.Broken} {
		roce.Results = append(roce.Results, result("rc/psn", i, v))
	}
	for i := range 40 {
		roce.Results = append(roce.Results, result("rc/read", 10+i, conform.Pass))
	}
	roce.Results[1].Defective = []conform.Defective{{Defect: "NAKStorm", Verdict: conform.Fail, Reason: "want one NAK, got three"}, {Defect: "PSNUnsigned", Verdict: conform.Pass}}
	roce.DefectChecks = []conform.DefectCheck{
		{Defect: "NAKStorm", Imitates: "R9", Does: "every packet after a gap is NAKed", Tried: 2, Caught: []string{"rc/psn/behaviour-1", "rc/read/behaviour-30"}, Expects: []string{"rc/psn/behaviour-1"}},
		{Defect: "PSNUnsigned", Does: "PSNs are compared as numbers", Tried: 1, Expects: []string{"rc/psn/behaviour-1"}},
		{Defect: "Late", Does: "responses arrive late", Excused: "rc/slow must detect it, which this bench cannot run", Expects: []string{"rc/psn/behaviour-2"}},
	}
	roce.Measured = measurements()
	iwarp := conform.Device{Name: "softiwarp", Title: "soft-iWARP", Results: []conform.Result{stream()}}
	r.Devices = []conform.Device{roce, iwarp}
	return r
}

func documents() []conform.Document {
	rows := []conform.Row{
		{ID: "roce/rc/psn/1", Level: "MUST", Clause: "C9-105", IDs: []string{"C9-105", "V1C09-105#01"}, Text: "A gap is answered by one NAK.", Cases: []string{"rc/psn/behaviour-0", "rc/psn/behaviour-1"}},
		{ID: "roce/rc/psn/2", Level: "SHOULD", Text: "This has no effect on the wire.", Untestable: "no packet shows it"},
		{ID: "roce/rc/psn/3", Level: "MAY", Text: "This has no case."},
		{ID: "roce/rc/psn/4", Level: "MUST", Text: "This was not tested.", Cases: []string{"rc/psn/another"}},
		{ID: "roce/rc/psn/5", Level: "MUST", Text: "This is not supported.", Cases: []string{"rc/psn/behaviour-2"}},
	}
	return []conform.Document{
		{Key: "roce", Title: "RoCEv2 and the InfiniBand transport", Revision: "public texts only", Sections: []conform.Section{{Title: "RC: PSNs", Rows: rows}, {Title: "UC", Rows: []conform.Row{{ID: "roce/uc/1", Level: "MUST", Text: "UC."}}}}},
		{Key: "rfc5044", Title: "RFC 5044: Marker PDU Aligned Framing for TCP (MPA)", Sections: []conform.Section{{Title: "4.1 FPDU format", Rows: []conform.Row{{ID: "rfc5044/4.1/3", Level: "MUST", Clause: "4.1", Text: "The pad is zero.", Cases: []string{"mpa/fpdu/pad"}}}}}},
		{Key: "other", Title: "Another document", Sections: []conform.Section{{Title: "1", Rows: []conform.Row{{ID: "other/1", Level: "MUST", Text: "Something."}}}}},
	}
}

func result(topic string, i int, v conform.Verdict) conform.Result {
	r := conform.Result{
		ID: fmt.Sprintf("%s/behaviour-%d", topic, i), Suite: "roce", Title: fmt.Sprintf("The device does the right thing, number %d", i), Cite: "IBTA C9-105",
		Rows: []string{"roce/rc/psn/1"}, Level: "MUST", Labels: []string{"service:rc"}, Sends: "a SEND after a gap", Expects: "one NAK",
		Verdict: v, Took: 900 * time.Microsecond, Replay: fmt.Sprintf("fabrictest conform %s/behaviour-%d --device softroce --on sim --seed 7", topic, i),
	}
	switch v {
	case conform.Pass:
	case conform.Fail:
		r.Reason, r.Want, r.Got = "want ACK psn 256 with PSN 256, got ACK psn 257 msn 1 with PSN 257", "ACK psn 256 with PSN 256", "ACK psn 257 msn 1 with PSN 257"
		r.Capture, r.Ladder = "captures/softroce/rc/psn/behaviour-0.pcapng", ladder()
	case conform.Broken:
		r.Reason, r.Detail = "panic: index out of range", "goroutine 7 [running]:\nmain.main()"
		r.Ladder = &conform.Ladder{Steps: []conform.Step{}}
	case conform.Deviates:
		r.Reason, r.Want, r.Got = "want one ACK, got two", "one ACK", "two"
		r.Deviation = "the kernel acknowledges twice (seen on every version)"
	default:
		r.Reason = "it is known: the kernel does so since 4.8"
	}
	return r
}

func ladder() *conform.Ladder {
	return &conform.Ladder{Beyond: 31, Steps: []conform.Step{
		{At: 8200 * time.Nanosecond, Kind: conform.Note, Text: "the device listens at [fd00:fab:66::1]:49152"},
		{At: 8400 * time.Nanosecond, Kind: conform.Sent, Text: "SEND_ONLY psn 256 AckReq 8 B"},
		{At: 8400 * time.Nanosecond, Kind: conform.Gap, Text: "31 more"},
		{At: 9500 * time.Nanosecond, Kind: conform.Note, Text: "completion of 1: IBV_WC_RECV, 8 bytes"},
		{At: 60*time.Second + 9500, Kind: conform.Note, Text: "post IBV_WR_RDMA_READ 2"},
		{At: 60*time.Second + 12*time.Microsecond, Kind: conform.Received, Text: "ACK psn 257 msn 1"},
	}}
}

func stream() conform.Result {
	r := result("mpa/fpdu", 0, conform.Fail)
	r.ID, r.Suite, r.Cite, r.Rows, r.Level = "mpa/fpdu/pad", "iwarp", "RFC 5044 4.1", []string{"rfc5044/4.1/3", "rfc5044/nowhere"}, "SHOULD"
	r.Want, r.Got, r.Capture = "nothing is sent", "a reset stream", ""
	r.Ladder = &conform.Ladder{Steps: []conform.Step{
		{At: 1, Kind: conform.Sent, Stream: 1, Text: "MPA REQUEST rev 2 " + fmt.Sprint(make([]int, 200))},
		{At: 2, Kind: conform.FinSent, Stream: 1, Text: "FIN"},
		{At: 3, Kind: conform.FinReceived, Stream: 1, Text: "FIN"},
		{At: 4, Kind: conform.Reset, Stream: 2, Text: "(stream 2) RST"},
	}}
	return r
}

func measurements() []conform.Measured {
	one := func(name, unit string, position int, samples ...float64) conform.Measured {
		sorted := slices.Sorted(slices.Values(samples))
		return conform.Measured{Name: name, About: "what " + name + " is", Unit: unit, Median: sorted[len(sorted)/2], Least: sorted[0], Most: sorted[len(sorted)-1], Samples: samples, Position: position}
	}
	all := []conform.Measured{
		one("nak/generation", conform.Microseconds, 0, 2, 2.5, 3), one("nak/for-a-gap", conform.Packets, 0, 1, 1, 1),
		one("loss/timer", conform.Microseconds, 0, 4194.304), one("timeout/code-10", conform.Nominal, 0, 1, 1.25, 3.5),
	}
	for i := range 8 {
		t := 2 + float64(i)/10
		if i == 7 {
			t = 4200
		}
		all = append(all, one(fmt.Sprintf("loss/at-%d/retransmission", i+1), conform.Microseconds, i+1, t, t*1.1), one(fmt.Sprintf("read/at-%d/reaction", i+1), conform.Microseconds, i+1, t*1.2, t*1.5))
	}
	return all
}
