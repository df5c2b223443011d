package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const microsecond = 1e-6

// perftest: a column of a table, and the series that it becomes. Bandwidths are in MiB/s, or in
// Gb/s with --report_gbits. A latency is the median of a run, and each percentile a series.
var perftestColumn = regexp.MustCompile(`#\w+|BW[ _]\w+\[[^\]]+\]|MsgRate\[\w+\]|t_\w+\[\w+\]|[\d.]+%[ _]percentile\[\w+\]|tps average|CPU_Util\[%\]`)

var perftestUnits = map[string]struct {
	suffix string // of the series name
	unit   Unit
	scale  float64
}{
	"BW average[MB/sec]":     {"", Bytes, 1 << 20},
	"BW average[Gb/sec]":     {"", Bytes, 1e9 / 8},
	"MsgRate[Mpps]":          {"", Messages, 1e6},
	"t_typical[usec]":        {"", Seconds, microsecond},
	"99% percentile[usec]":   {"/percentile=99", Seconds, microsecond},
	"99.9% percentile[usec]": {"/percentile=99.9", Seconds, microsecond},
	"#bytes":                 {},
	"#iterations":            {},
	"BW peak[MB/sec]":        {},
	"BW peak[Gb/sec]":        {},
	"t_min[usec]":            {},
	"t_max[usec]":            {},
	"t_avg[usec]":            {},
	"t_stdev[usec]":          {},
	"tps average":            {},
	"CPU_Util[%]":            {},
}

var (
	perftestTitle = regexp.MustCompile(`(?m)^\s*((?:RDMA_)?\w+(?: \w+)*) Test\s*$`)
	perftestKey   = regexp.MustCompile(`([A-Z][\w*. -]*?\w)\s*:\s+([^\s\[]+)`)
)

// parsePerftest parses the output of perftest programs such as ib_write_bw, of one run or of
// several. The settings that perftest prints before a table apply to its rows.
func parsePerftest(_, text string) (*Run, error) {
	run := &Run{Tool: "perftest", Options: map[string]string{}}
	test, qps := "", "1"
	var columns []string
	for n, line := range strings.Split(text, "\n") {
		switch fields := strings.Fields(line); {
		case perftestTitle.MatchString(line):
			test = SeriesName(perftestTitle.FindStringSubmatch(line)[1])
			columns = nil
		case strings.Contains(line, "#bytes"):
			columns = perftestColumn.FindAllString(line, -1)
		case columns != nil && len(fields) == len(columns) && isNumber(fields[0]):
			if test == "" {
				return nil, fmt.Errorf("line %d: a row without the name of its test, as in 'RDMA_Write BW Test'", n+1)
			}
			if err := run.addPerftestRow(test, qps, columns, fields); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		default:
			for _, m := range perftestKey.FindAllStringSubmatch(line, -1) {
				switch key := strings.Join(strings.Fields(m[1]), " "); key {
				case "Device":
					run.Device.Name = m[2]
				case "Link type":
					run.Device.Link = m[2]
				case "Number of qps":
					qps = m[2]
				case "Connection type", "Mtu", "TX depth", "CQ Moderation", "Using SRQ", "Outstand reads", "Max inline data":
					run.Options[strings.ToLower(strings.ReplaceAll(key, " ", "_"))] = m[2]
				}
			}
		}
	}
	return run, nil
}

// SeriesName returns the measurement of a title of perftest: write_bw of "RDMA_Write BW".
func SeriesName(title string) string {
	title = strings.ToLower(strings.TrimPrefix(title, "RDMA_"))
	return strings.ReplaceAll(strings.ReplaceAll(title, "latency", "lat"), " ", "_")
}

// addPerftestRow adds the values of a row of perftest's table to the series of its test, message
// size and number of queue pairs. Columns whose unit is empty in perftestUnits are left out.
func (r *Run) addPerftestRow(test, qps string, columns, fields []string) error {
	name := test + "/bytes=" + fields[0]
	if qps != "1" {
		name += "/qps=" + qps
	}
	for i, c := range columns {
		// Some versions of perftest write "BW_average" and "99%_percentile", without spaces.
		u, known := perftestUnits[strings.Replace(strings.Replace(c, "BW_", "BW ", 1), "%_", "% ", 1)]
		switch {
		case !known:
			return fmt.Errorf("the column %q is not known", c)
		case u.unit == "":
			continue
		}
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return err
		}
		r.Add(name+u.suffix, u.unit, v*u.scale)
	}
	return nil
}

// parsePerftestJSON parses the file of perftest's --out_json.
func parsePerftestJSON(text string) (*Run, error) {
	var f struct {
		Info    map[string]any     `json:"test_info"`
		Results map[string]float64 `json:"results"`
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, err
	}
	info := func(key string) string {
		for k, v := range f.Info {
			if strings.EqualFold(k, key) {
				return fmt.Sprint(v)
			}
		}
		return ""
	}
	test := strings.TrimSuffix(SeriesName(strings.ReplaceAll(info("test"), " Test", "")), "_test")
	size, ok := f.Results["MsgSize"]
	if test == "" || !ok {
		return nil, errors.New("perftest's JSON: test_info.test or results.MsgSize is missing")
	}
	r := &Run{Tool: "perftest", Device: Device{Name: info("Device"), Link: info("Link_type")}}
	name := fmt.Sprintf("%s/bytes=%.0f", test, size)
	if qps := info("Number_of_qps"); qps != "" && qps != "1" {
		name += "/qps=" + qps
	}
	for _, c := range []struct {
		key, suffix string
		unit        Unit
		scale       float64
	}{
		{"t_typical", "", Seconds, microsecond},
		{"t_99", "/percentile=99", Seconds, microsecond},
		{"t_99.9", "/percentile=99.9", Seconds, microsecond},
		{"MsgRate", "", Messages, 1e6},
	} {
		if v, ok := f.Results[c.key]; ok {
			r.Add(name+c.suffix, c.unit, v*c.scale)
		}
	}
	// The unit of BW_average depends on a flag that the file does not have; the message rate does not.
	if rate, ok := f.Results["MsgRate"]; ok && size > 0 {
		r.Add(name, Bytes, rate*1e6*size)
	}
	return r, nil
}

// osuColumns are the columns of OSU tables that become series. A megabyte is 10^6 bytes.
var osuColumns = map[string]struct {
	unit  Unit
	scale float64
}{
	"Latency (us)": {Seconds, microsecond}, "Avg Latency(us)": {Seconds, microsecond}, "Avg Lat(us)": {Seconds, microsecond}, "Latency(us)": {Seconds, microsecond},
	"Bandwidth (MB/s)": {Bytes, 1e6}, "MB/s": {Bytes, 1e6}, "Messages/s": {Messages, 1},
}

var (
	osuTitle  = regexp.MustCompile(`^# OSU (?:MPI )?(.*?)(?: Test)?(?: v([\d.]+))?\s*$`)
	osuColumn = regexp.MustCompile(`\s{2,}`)
)

// parseOSU parses the output of OSU micro-benchmarks, one or several after each other.
func parseOSU(_, text string) (*Run, error) {
	run := &Run{Tool: "OSU micro-benchmarks"}
	test := ""
	var columns []string
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch m := osuTitle.FindStringSubmatch(line); {
		case m != nil:
			test, columns = osuName(m[1]), nil
			if m[2] != "" {
				run.Tool = "OSU micro-benchmarks " + m[2]
			}
		case strings.HasPrefix(line, "# Size"):
			columns = osuColumn.Split(strings.TrimSpace(line), -1)
		case columns != nil && len(fields) == len(columns) && isNumber(fields[0]):
			for i, c := range columns {
				u, ok := osuColumns[c]
				if !ok {
					continue
				}
				v, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return nil, fmt.Errorf("line %d: %w", n+1, err)
				}
				run.Add(test+"/bytes="+fields[0], u.unit, v*u.scale)
			}
		}
	}
	return run, nil
}

// osuName returns the measurement of a title: osu_latency of "Latency".
func osuName(title string) string {
	title = strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(title, " / ", " "), "-", ""))
	return "osu_" + strings.ReplaceAll(title, " ", "_")
}

var imbTitle = regexp.MustCompile(`^# Benchmarking (\S+)`)

// parseIMB parses the output of Intel MPI Benchmarks. It takes the times: the bandwidth is derived
// from them, with a megabyte that differs between versions.
func parseIMB(_, text string) (*Run, error) {
	run := &Run{Tool: "Intel MPI Benchmarks"}
	test, processes := "", ""
	at := -1 // index of the column with the time
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch m := imbTitle.FindStringSubmatch(line); {
		case m != nil:
			test, at = "imb_"+strings.ToLower(m[1]), -1
		case strings.HasPrefix(line, "# #processes = ") && len(fields) > 3:
			processes = fields[3]
		case len(fields) > 0 && fields[0] == "#bytes":
			for i, c := range fields {
				if c == "t[usec]" || c == "t_avg[usec]" {
					at = i
				}
			}
		case at > 0 && len(fields) > at && isNumber(fields[0]):
			v, err := strconv.ParseFloat(fields[at], 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			run.Add(fmt.Sprintf("%s/bytes=%s/ranks=%s", test, fields[0], processes), Seconds, v*microsecond)
		}
	}
	return run, nil
}

// isNumber reports whether a word is an unsigned integer, as the first of a row is.
func isNumber(word string) bool {
	_, err := strconv.ParseUint(word, 10, 64)
	return err == nil
}
