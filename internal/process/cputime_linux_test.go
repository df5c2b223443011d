package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestAddCPUsCountsOnlyUsableCPUs(t *testing.T) {
	const stat = `cpu  6 6 6 6 6 6 6 6 0 0
cpu0 1 2 3 4 5 6 7 8 0 0
cpu1 100 100 100 100 100 100 100 100 0 0
cpu2 1 1 1 1 1 1 1 1 0 0
intr 1 2 3 4 5 6 7 8 9 10
`
	var s CPUSample
	s.addCPUs([]byte(stat), func(cpu int) bool { return cpu != 1 })
	if want := (CPUSample{CPUs: 2, Busy: 180 * time.Millisecond, All: 440 * time.Millisecond}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

func TestParseSchedstat(t *testing.T) {
	if u, ok := parseSchedstat([]byte("12 34 5\n")); !ok || u != (CPUUsage{12, 34}) {
		t.Errorf("%+v, %v", u, ok)
	}
	for _, bad := range []string{"", "12", "a b c"} {
		if u, ok := parseSchedstat([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, u)
		}
	}
}

// The CPU time of a busy loop appears in all counters.
func TestBusyLoopIsCountedAsOwnTime(t *testing.T) {
	before, ok := SampleCPU()
	used, ok2 := UsedCPU()
	if !ok || !ok2 {
		t.Skip("this kernel has no /proc/stat or schedstat")
	}
	for {
		now, _ := SampleCPU()
		if u, _ := UsedCPU(); now.Own-before.Own > 50*time.Millisecond && u.Ran-used.Ran > 40*time.Millisecond && now.All > before.All {
			return
		}
	}
}

func TestParsePIDStat(t *testing.T) {
	const stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 1 2\n"
	if got := parsePIDStat([]byte(stat)); got != time.Second {
		t.Errorf("%v, want 1s", got)
	}
	for _, bad := range []string{"", "12 (a) S 1", "12"} {
		if got := parsePIDStat([]byte(bad)); got != 0 {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// The CPU time of a child that still runs is own time, not that of other processes.
func TestRunningChildIsCountedAsOwnTime(t *testing.T) {
	if lists, _ := filepath.Glob("/proc/self/task/*/children"); len(lists) == 0 {
		t.Skip("this kernel lists no children in /proc")
	}
	before := runningChildrenCPU("/")
	child := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo; read line")
	stdin, stdout := must.Get(child.StdinPipe())(t), must.Get(child.StdoutPipe())(t)
	must.Do(t, child.Start())
	must.Get(stdout.Read(make([]byte, 1)))(t) // the loop has ended, the child runs
	if got := runningChildrenCPU("/") - before; got == 0 {
		t.Error("the child has used no CPU time")
	}
	must.Do(t, stdin.Close())
	_ = child.Wait()
}

// Throttled time is the maximum of all control groups of the process, of both versions.
func TestThrottledTimeOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  time.Duration
	}{
		"none": {nil, 0},
		"version 2": {map[string]string{
			"proc/self/cgroup":               "0::/a/b\n",
			"sys/fs/cgroup/a/cpu.stat":       "usage_usec 9\nnr_throttled 3\nthrottled_usec 2000\n",
			"sys/fs/cgroup/a/b/cpu.stat":     "usage_usec 9\n",
			"sys/fs/cgroup/other/b/cpu.stat": "throttled_usec 9000\n",
		}, 2 * time.Millisecond},
		"version 2 in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "throttled_usec 7\n",
		}, 7 * time.Microsecond},
		"version 1": {map[string]string{
			"proc/self/cgroup":                     "3:memory:/m\n2:cpu,cpuacct:/x\n",
			"sys/fs/cgroup/cpu,cpuacct/x/cpu.stat": "nr_periods 5\nthrottled_time 42\n",
			"sys/fs/cgroup/memory/m/cpu.stat":      "throttled_time 99\n",
		}, 42 * time.Nanosecond},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			file = filepath.Join(root, file)
			must.Do(t, os.MkdirAll(filepath.Dir(file), 0o777))
			must.Do(t, os.WriteFile(file, []byte(text), 0o666))
		}
		if got := throttledTime(root); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
