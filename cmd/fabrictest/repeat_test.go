package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/scenarios"
)

// replayable is a command that prints command lines which repeat its work.
type replayable struct {
	name    string
	command *cobra.Command
	// kept are the flags that the line has, with a value that is not the default.
	kept map[string]string
	// omitted are the flags that the line does not have, with the reason.
	omitted map[string]string
	line    func() string
}

const (
	noVerdict      = "it changes the output or the files, not the verdict"
	namesSelection = "it selects scenarios or cases, which the line names"
	ofHosts        = "it names hosts, which TestCommandLineNamesHosts of mpirun covers"
)

func replayables() []replayable {
	run, runOf := &runOptions{program: cli.GoRun}, &runOptions{program: cli.GoRun}
	conformOne, conformAll, measure := &conformOptions{program: cli.GoRun}, &conformOptions{program: cli.GoRun}, &conformOptions{program: cli.GoRun}
	device, guest := &certifyOptions{program: cli.GoRun}, &certifyOptions{program: cli.GoRun}
	verbs, replay := &interopVerbs{program: cli.GoRun}, &replayOptions{program: cli.GoRun}
	mpi, memory := &mpirunOptions{program: cli.GoRun}, &perfMemory{program: cli.GoRun}
	certifyGuest, interopGuest := newCertifyCommand(guest), newInteropVerbsCommand(verbs)
	guestFlags := map[string]string{
		"guest": "siw-crc", "kernel": "6.1", "agent-program": "./my agent", "mtu": "1500", "memory": "2048", "cpus": "2", "append": "a=1;b", "accel": "tcg",
		"count-instructions": "true", "cache": "c d", "debs": "debs&co", "mirror": "http://[::1]/",
	}
	union := func(a, b map[string]string) map[string]string {
		all := maps.Clone(a)
		maps.Copy(all, b)
		return all
	}
	without := func(flags map[string]string, reason string, more map[string]string) map[string]string {
		all := maps.Clone(more)
		for k := range flags {
			all[k] = reason
		}
		return all
	}
	judgeFlags := map[string]string{
		"wire": "udp", "level": "must", "label": "psn", "dangerous": "true", "deviations": "my known.yaml", "case-time": "3m0s", "seed": "7",
	}
	agentFlags := map[string]string{"agent": "[::1]:7471", "key": "a key", "device": "mlx5_0", "interface": "eth1", "peer": "198.51.100.20/24"}
	notJudged := map[string]string{"sign": noVerdict, "out": "the line has a placeholder"}
	return []replayable{
		{
			"a scenario", newRunCommand(runOf),
			map[string]string{"on": "netns", "netem": "true", "seed": "7", "messages": "3", "provider": "softiwarp", "cable": "shm", "defect": "AckCompletesRead"},
			map[string]string{"tag": namesSelection, "out": noVerdict, "json": noVerdict, "capture": noVerdict, "seeds": "the line names the one seed that failed"},
			func() string { return runOf.replay("my file.yaml", scenarios.NetNS, 7) },
		},
		{
			"a run", newRunCommand(run),
			map[string]string{"on": "netns", "netem": "true", "seed": "7", "messages": "3", "provider": "softiwarp", "cable": "shm", "defect": "AckCompletesRead", "tag": "loss"},
			map[string]string{"out": noVerdict, "json": noVerdict, "capture": noVerdict, "seeds": "a run of many seeds prints a line for each that failed, and none for itself"},
			func() string { return run.command(7) },
		},
		{
			"a replay", newReplayCommand(replay),
			map[string]string{"on": "sim", "all": "true"},
			map[string]string{"out": noVerdict, "capture": noVerdict, "trace": noVerdict, "html": noVerdict, "pcap": noVerdict},
			func() string { return replay.command("a run/", []string{"loss-*"}) },
		},
		{
			"a case", newConformCommand(conformOne),
			map[string]string{"device": "softroce", "on": "netns", "seed": "7", "defect": "GhostAckCompletes", "as": "rxe-6.12", "deviations": "my known.yaml", "schedules": "3"},
			map[string]string{
				"level": namesSelection, "label": namesSelection, "without": namesSelection, "check-cases": "the verdict is that of the device without the defect", "matrix": "it is about --check-cases",
				"capture": noVerdict, "out": noVerdict, "json": noVerdict, "packets": noVerdict, "workers": "one case runs alone",
			},
			func() string { return conformOne.replay("softroce", "rc/psn/one", 7) },
		},
		{
			"all cases", newConformCommand(conformAll),
			map[string]string{
				"device": "softroce", "on": "netns", "seed": "7", "defect": "GhostAckCompletes", "as": "rxe-6.12", "deviations": "my known.yaml", "schedules": "3",
				"level": "must", "label": "psn", "without": "slow", "check-cases": "true", "matrix": "true",
			},
			map[string]string{"capture": noVerdict, "out": noVerdict, "json": noVerdict, "packets": noVerdict, "workers": "cases are independent of each other"},
			func() string { return conformAll.command(7) },
		},
		{
			"a measurement", newConformMeasureCommand(measure),
			map[string]string{"device": "softroce", "on": "netns", "seed": "7", "defect": "GhostAckCompletes", "as": "rxe-6.12"},
			map[string]string{"out": noVerdict, "json": noVerdict},
			func() string { return measure.measureCommand(7) },
		},
		{
			"a certification through an agent", newCertifyCommand(device),
			union(judgeFlags, agentFlags), without(guestFlags, "it is about guests", notJudged),
			func() string { return device.command([]string{"rc/psn/*"}, 7) },
		},
		{
			"a certification of a guest", certifyGuest, union(guestFlags, judgeFlags), without(agentFlags, "it is about devices of agents", notJudged),
			func() string {
				guest.guest.given = givenFlags(certifyGuest, guestFlagNames)
				return guest.command([]string{"rc/psn/*"}, 7)
			},
		},
		{
			"an exchange", interopGuest, union(guestFlags, map[string]string{"loss": "5%", "impair": "loss=5% reorder=1%", "seed": "7", "timeout": "1m0s"}),
			map[string]string{"connections": "connections are tested after the exchanges", "out": noVerdict, "list": "nothing is run"},
			func() string {
				verbs.guest.given = givenFlags(interopGuest, guestFlagNames)
				return verbs.command("write/theirs/hand/ipv6/4097")
			},
		},
		{
			"a run of ranks", newMPIRunCommand(mpi),
			map[string]string{
				"ranks": "5", "per-host": "2", "device": "[rxe0,rxe1]", "check": "[races]", "netdev": "[eth1,eth2]", "remote-path": "/opt/my fabrictest", "rails": "2", "on": "sim", "provider": "softiwarp", "cable": "shm", "platform": "./a host.yaml", "no-icrc": "true", "mtu": "1500", "loss": "1%", "seed": "7", "design": "srq",
				"protocol": "rput", "progress": "background", "eager": "100", "collectives": "bcast=chain", "arrivals": "true", "limit": "1m0s", "keep-going": "true", "bind": "true",
			},
			map[string]string{
				"label": noVerdict, "stats": noVerdict, "out": noVerdict,
				"hosts": ofHosts, "hostfile": ofHosts, "launcher": ofHosts,
			},
			func() string {
				mpi.run.Seed = 7 // check sets it
				return mpi.command([]string{"cg", "--class", "S"})
			},
		},
		{
			"a measurement of memory", newPerfMemoryCommand(memory),
			map[string]string{"ranks": "[4,8]", "only": "curves", "design": "srq", "workload": "cg", "seed": "7"},
			map[string]string{"out": noVerdict, "json": noVerdict},
			func() string { return memory.command(7) },
		},
	}
}

// Every flag is in one of the two lists; the line keeps the values of those in kept.
func TestReplayCommandsKeepFlags(t *testing.T) {
	for _, r := range replayables() {
		t.Run(r.name, func(t *testing.T) {
			r.command.LocalFlags().VisitAll(func(f *pflag.Flag) {
				value, kept := r.kept[f.Name]
				_, omitted := r.omitted[f.Name]
				if kept == omitted && f.Name != "help" {
					t.Errorf("--%s: add it to one list of this test: the replay command of %s keeps it, or omits it for a reason", f.Name, r.name)
				}
				if kept {
					if err := r.command.Flags().Set(f.Name, strings.Trim(value, "[]")); err != nil {
						t.Error(err)
					}
				}
			})
			line := r.line()
			words := shellWords(t, line)
			root := newRootCommand(cli.GoRun)
			again, rest, err := root.Find(words)
			if err == nil {
				err = again.ParseFlags(rest)
			}
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for name := range r.kept {
				was, is := r.command.Flags().Lookup(name).Value.String(), again.Flags().Lookup(name).Value.String()
				if was != is {
					t.Errorf("--%s is %q, and was %q: %s", name, is, was, line)
				}
			}
		})
	}
}

// shellWords splits a line as a shell does, and removes the program.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	rest, ok := strings.CutPrefix(line, cli.GoRun+" ")
	if !ok {
		rest, ok = strings.CutPrefix(line, goRunIbverbs+" ")
	}
	if !ok {
		t.Fatalf("it does not begin with %s: %s", cli.GoRun, line)
	}
	var word strings.Builder
	begun, quoted := false, false
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
			word.WriteByte(c)
		case c == '\\':
			i++
			word.WriteByte(rest[i])
		case c == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
			continue
		case strings.IndexByte("*?[]{}()<>&|;$`\"!#~\n\t", c) >= 0:
			t.Fatalf("a shell would act on %q: %s", c, line)
		default:
			word.WriteByte(c)
		}
		begun = true
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// The replay command of each scenario and case gives the same verdict.
func TestReplayCommandsRepeatVerdicts(t *testing.T) {
	const ghost = "rc/psn/ack-of-what-was-never-sent-ignored" // fails on GhostAckCompletes
	dir := t.TempDir()
	known := filepath.Join(dir, "known deviations.yaml")
	must.Do(t, os.WriteFile(known, []byte("rc/psn/gap-naked-once: {reason: made up}\n"), 0o600))
	own := filepath.Join(dir, "my-pingpong.yaml")
	text := must.Get(os.ReadFile("../../scenarios/pingpong.yaml"))(t)
	must.Do(t, os.WriteFile(own, bytes.Replace(text, []byte("name: pingpong"), []byte("name: my-pingpong"), 1), 0o600))
	for name, args := range map[string][]string{
		"a scenario":               {"run", "pingpong", "--on", "sim", "--seed", "7"},
		"a file":                   {"run", own, "--on", "sim", "--messages", "3"},
		"a scenario with a defect": {"run", "loss-5-percent", "--on", "sim", "--defect", "AckCompletesRead"},
		"another provider":         {"run", "pingpong", "--on", "sim", "--provider", "softiwarp"},
		"a skipped scenario":       {"run", "dgiwarp-rd", "--on", "sim", "--provider", "softroce"},
		"cases":                    {"conform", "rc/psn/gap-*", "--device", "softroce", "--seed", "9"},
		"a device with a defect":   {"conform", "rc/psn/gap-*", ghost, "--defect", "GhostAckCompletes"},
		"a profile":                {"conform", "rc/psn", "--as", "rxe-6.12", "--level", "must"},
		"deviations":               {"conform", "rc/psn/gap-*", "--device", "softroce", "--deviations", known},
		"deviations of defects":    {"conform", "rc/psn/gap-*", ghost, "--device", "softroce", "--defect", "GhostAckCompletes", "--deviations", known},
		"schedules":                {"conform", "linear", "--device", "softroce", "--schedules", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			first := verdictsOf(t, args)
			if len(first) == 0 {
				t.Fatal("no scenario or case was run")
			}
			tried := map[string]bool{}
			for line, verdict := range first {
				if tried[verdict] { // one of each verdict is enough
					continue
				}
				tried[verdict] = true
				if again := verdictsOf(t, shellWords(t, line)); len(again) != 1 || again[line] != verdict {
					t.Errorf("%s: %s, and then %v", line, verdict, again)
				}
			}
		})
	}
}

// verdictsOf runs the program and returns the verdicts by the command that repeats each.
func verdictsOf(t *testing.T, args []string) map[string]string {
	t.Helper()
	code, out, stderr := call(t, append(args, "--json")...)
	if code != exitOK && code != exitFailed {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
	all := map[string]string{}
	var err error
	if args[0] == "run" {
		var run report.Run
		err = json.Unmarshal([]byte(out), &run)
		for i := range run.Scenarios {
			all[run.Scenarios[i].Replay] = string(run.Scenarios[i].Verdict)
		}
	} else {
		var run conform.Run
		err = json.Unmarshal([]byte(out), &run)
		for i := range run.Devices {
			for _, r := range run.Devices[i].Results {
				all[r.Replay] = string(r.Verdict)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
