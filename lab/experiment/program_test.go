package experiment

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/report"
)

// programs has a ping-pong over verbs, and one of MPI.
const programs = `version: 1
name: latencies
title: Programs over verbs
experiment:
  platform: c1-opteron-swiwarp
  vary: {bytes: [64, 1KiB]}
  variants:
    one: {program: send-pingpong}
    datagrams: {program: send-pingpong, provider: dgiwarp}
    several: {program: write-pingpong, connections: 4}
    stream: {program: both-ways, connections: 2}
    MPI: {workload: pingpong, ranks: 2, iterations: 4, design: sendrecv, receives: 8, packet: 16KiB}
  figures:
    - row: B1
      text: MPI takes longer than verbs
      measure: {kind: increase, figure: latency, from: one, to: MPI, bytes: 64}
      published: {op: ">", value: 0, unit: "%%", where: A paper}
    - row: B2
      text: Datagrams save the work of TCP
      measure: {kind: reduction, figure: latency, from: one, to: datagrams, over: smallest}
      published: {op: ">", value: 0, unit: "%%", where: A paper}
    - row: B3
      text: The latency is divided by the number of connections
      measure: {kind: reduction, figure: latency, from: one, to: several, bytes: 64}
      published: {op: ">", value: %d, unit: "%%", where: A paper}
    - row: B4
      text: The bandwidth
      measure: {kind: value, figure: bandwidth, of: stream, bytes: 1KiB}
      published: {op: ">", value: 50, unit: MB/s, where: A paper}
`

func TestProgramsOverVerbs(t *testing.T) {
	r := run(t, fmt.Sprintf(programs, 10))
	for _, c := range r.Checks {
		t.Logf("%s: want %s, got %s", c.Name, c.Want, c.Got)
	}
	if r.Verdict != report.Passed || r.Experiment.Agreeing() != 4 {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	if r := run(t, fmt.Sprintf(programs, 90)); r.Verdict != report.Failed {
		t.Errorf("%s with four connections that take a tenth of the time", r.Verdict)
	}
}
