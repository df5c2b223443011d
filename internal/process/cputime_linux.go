package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// UsedCPU returns the sum of the usage of all live threads of this process. It returns
// false if the kernel lacks CONFIG_SCHED_INFO.
func UsedCPU() (CPUUsage, bool) { return UsedCPUOf(os.Getpid()) }

// UsedCPUOf returns the sum of the usage of all live threads of a process. It returns false if there
// is no such process, or the kernel lacks CONFIG_SCHED_INFO.
func UsedCPUOf(pid int) (CPUUsage, bool) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return CPUUsage{}, false
	}
	var sum CPUUsage
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has exited
		}
		u, ok := parseSchedstat(text)
		if !ok {
			return CPUUsage{}, false
		}
		sum.Ran += u.Ran
		sum.Waited += u.Waited
	}
	return sum, sum.Ran > 0 // without CONFIG_SCHED_INFO the files are missing, or have only zeros
}

// UsedResources returns the CPU time of this process, in its program and in the kernel, and the peak
// of its resident memory in bytes.
func UsedResources() (cpu time.Duration, peakMemory uint64, ok bool) {
	var u unix.Rusage
	text, err := os.ReadFile("/proc/self/status") // the peak in u may be that of the parent process
	if err != nil || unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, 0, false
	}
	_, rest, found := strings.Cut(string(text), "\nVmHWM:")
	var kib uint64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil || !found {
		return 0, 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), kib << 10, true
}

// parseSchedstat parses /proc/PID/task/TID/schedstat: nanoseconds on a CPU, nanoseconds in a
// run queue, number of time slices. It returns false if the first two are not numbers.
func parseSchedstat(text []byte) (CPUUsage, bool) {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return CPUUsage{}, false
	}
	ran, err1 := strconv.ParseInt(string(fields[0]), 10, 64)
	waited, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	return CPUUsage{time.Duration(ran), time.Duration(waited)}, err1 == nil && err2 == nil
}

// SampleCPU reads the counters of the CPUs that this process may use, the CPU time of the process
// and its children, running or reaped, and its throttled time. It returns false if the counters cannot be read.
func SampleCPU() (CPUSample, bool) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return CPUSample{}, false
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUSample{}, false
	}
	s := CPUSample{At: time.Now(), Own: runningChildrenCPU("/"), Throttled: throttledTime("/")}
	s.addCPUs(text, set.IsSet)
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			s.Own += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return s, s.CPUs > 0 && s.All > 0
}

// runningChildrenCPU returns the CPU time of the children of this process that it has not reaped, a
// virtual machine for example, and of their reaped children. root is the directory with proc. It
// returns 0 if the kernel lacks CONFIG_PROC_CHILDREN.
func runningChildrenCPU(root string) (sum time.Duration) {
	lists, err := filepath.Glob(filepath.Join(root, "proc/self/task/*/children"))
	if err != nil {
		return 0
	}
	for _, name := range lists {
		pids, _ := os.ReadFile(name) // a thread that has exited has no children
		for pid := range strings.FieldsSeq(string(pids)) {
			stat, _ := os.ReadFile(filepath.Join(root, "proc", pid, "stat"))
			sum += parsePIDStat(stat)
		}
	}
	return sum
}

// parsePIDStat returns the CPU time in /proc/PID/stat, of the process and its reaped children. It
// returns 0 if the text is not of that form.
func parsePIDStat(stat []byte) (sum time.Duration) {
	const utime, cstime = 11, 14 // after the name of the program, which is in parentheses
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= cstime {
		return 0
	}
	for _, f := range fields[utime : cstime+1] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(string(f), 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

// throttledTime returns how long CPU limits throttled this process: the longest time in cpu.stat of
// its control groups and their ancestors, 0 without any. root is the directory with proc and sys.
func throttledTime(root string) (longest time.Duration) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		// hierarchy ID, controllers, path: "4:cpu,cpuacct:/a" in version 1 of control groups,
		// "0::/user.slice" in version 2.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		controllers := fields[1]
		if controllers != "" && !slices.Contains(strings.Split(controllers, ","), "cpu") {
			continue
		}
		mount := filepath.Join(root, "sys/fs/cgroup", controllers)
		for dir := filepath.Join("/", fields[2]); ; dir = filepath.Dir(dir) {
			if stat, err := os.ReadFile(filepath.Join(mount, dir, "cpu.stat")); err == nil {
				longest = max(longest, parseThrottled(stat))
			}
			if dir == "/" {
				break
			}
		}
	}
	return longest
}

// parseThrottled returns the throttled time in a cpu.stat file: throttled_time in nanoseconds
// in version 1 of control groups, throttled_usec in version 2. It returns 0 without either.
func parseThrottled(stat []byte) time.Duration {
	for line := range strings.Lines(string(stat)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit := map[string]time.Duration{"throttled_time": time.Nanosecond, "throttled_usec": time.Microsecond}[name]
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && unit > 0 {
			return time.Duration(n) * unit
		}
	}
	return 0
}

// Fields of a cpu line in /proc/stat after the name. Guest time is part of user and nice.
const (
	user = iota
	nice
	system
	idle
	iowait
	irq
	softirq
	steal
	statFields

	tick = 10 * time.Millisecond // USER_HZ, the same on every Linux
)

// addCPUs adds to s the counters of the CPUs for which mayUse is true, from the text of /proc/stat.
// Interrupt time does not count as busy, because packets of this process cause it too.
func (s *CPUSample) addCPUs(stat []byte, mayUse func(cpu int) bool) {
	for line := range bytes.Lines(stat) {
		fields := bytes.Fields(line)
		var cpu int
		if len(fields) < 1+statFields {
			continue
		}
		if n, _ := fmt.Sscanf(string(fields[0]), "cpu%d", &cpu); n != 1 || !mayUse(cpu) {
			continue
		}
		s.CPUs++
		for i, f := range fields[1 : 1+statFields] {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			d := time.Duration(n) * tick
			s.All += d
			if i == user || i == nice || i == system || i == steal {
				s.Busy += d
			}
		}
	}
}
