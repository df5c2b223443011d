package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// errHang is the error of tests that use no CPU time for maxIdle, or exceed their time limit.
var errHang = errors.New("hang")

// hangDetector detects that a run uses no CPU time anymore: all of it waits for something that
// does not happen. A run on a busy machine is slow, but not idle.
type hangDetector struct {
	run any           // the current run
	cpu time.Duration // CPU time of the run when it was last found working
	at  time.Time     // when that was
}

const (
	maxIdle = time.Minute
	// idleCPU is the most CPU time that a run which hangs uses in maxIdle, for its background work.
	idleCPU = 100 * time.Millisecond
)

// check reports whether a run has been idle for more than maxIdle: it has used at most idleCPU in
// that time. cpu is the CPU time that it has used in total. A different run starts a new measurement.
// check must be called periodically.
func (d *hangDetector) check(run any, cpu time.Duration, now time.Time) bool {
	// The CPU time of a process and its descendants decreases when a descendant is lost.
	if used := cpu - d.cpu; d.run != run || used > idleCPU || used < 0 {
		*d = hangDetector{run: run, cpu: cpu, at: now}
	}
	return now.Sub(d.at) > maxIdle
}

// watchHang calls cancel if a process and its descendants hang, and returns when ended is closed.
func watchHang(pid int, ended <-chan struct{}, cancel func(error)) {
	var d hangDetector
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case now := <-tick.C:
			if cpu, ok := treeCPUTime(pid); ok && d.check(pid, cpu, now) {
				cancel(errHang)
				return
			}
		}
	}
}

// processStat is a part of /proc/PID/stat.
type processStat struct {
	parent int
	ticks  uint64 // CPU time of the process and of its children that have ended
}

// treeCPUTime returns the CPU time of a process and its descendants. ok is false if the system does
// not tell it.
func treeCPUTime(pid int) (t time.Duration, ok bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	all := map[int]processStat{}
	for _, name := range files {
		var id int
		if _, err := fmt.Sscanf(name, "/proc/%d/stat", &id); err != nil {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		if s, ok := parseStat(string(text)); ok {
			all[id] = s
		}
	}
	_, ok = all[pid]
	const tick = 10 * time.Millisecond // USER_HZ is 100 on the systems that Go supports
	for id, s := range all {
		for id != pid && id != 0 {
			id = all[id].parent
		}
		if id == pid {
			t += time.Duration(s.ticks) * tick
		}
	}
	return t, ok
}

// parseStat parses the text of /proc/PID/stat: PID (COMMAND) STATE PARENT ... The command may
// contain parentheses.
func parseStat(text string) (s processStat, ok bool) {
	const atParent, atTimes = 1, 11 // after the command
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < atTimes+4 {
		return s, false
	}
	if _, err := fmt.Sscan(fields[atParent], &s.parent); err != nil {
		return s, false
	}
	for _, f := range fields[atTimes : atTimes+4] { // user and system time, and those of ended children
		var n uint64
		if _, err := fmt.Sscan(f, &n); err != nil {
			return s, false
		}
		s.ticks += n
	}
	return s, true
}
