package certificate

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/conform"
)

// judged returns a conformance run of one device: cases c0, c1, … with these verdicts, each
// for its own ledger row, and two more rows: one that cannot be tested and one without cases.
func judged(verdicts ...conform.Verdict) *conform.Run {
	doc := conform.Document{Key: "roce", Title: "RoCEv2", Sections: []conform.Section{{Title: "PSNs"}}}
	d := conform.Device{Name: "rxe0", Title: "RoCEv2"}
	for i, v := range verdicts {
		id := "rc/psn/c" + string(rune('0'+i))
		row := "roce/rc/psn/" + string(rune('0'+i))
		doc.Sections[0].Rows = append(doc.Sections[0].Rows, conform.Row{ID: row, Level: "MUST", Text: "One | of them.", Cases: []string{id}})
		r := conform.Result{ID: id, Suite: "roce", Title: "It works", Level: "MUST", Rows: []string{row}, Verdict: v}
		if v != conform.Unsupported {
			r.Capture = "captures/" + id + ".pcapng"
			r.Ladder = &conform.Ladder{Steps: []conform.Step{{Kind: conform.Received, Text: "ACK"}}}
		}
		d.Results = append(d.Results, r)
	}
	doc.Sections[0].Rows = append(doc.Sections[0].Rows, conform.Row{ID: "roce/rc/psn/x", Level: "MUST", Text: "A light is green.", Untestable: "nobody sees it"})
	other := conform.Document{Key: "other", Title: "Another", Sections: []conform.Section{{Title: "1", Rows: []conform.Row{{ID: "other/1", Level: "MUST", Text: "Something."}}}}}
	return &conform.Run{Version: conform.Version, Tool: "v1", Seed: 1, Tier: "wire", Started: time.Unix(0, 0).UTC(), Devices: []conform.Device{d}, Documents: []conform.Document{doc, other}}
}

func TestOutcomes(t *testing.T) {
	const pass, fail, dev, stale, broken, uns = conform.Pass, conform.Fail, conform.Deviates, conform.Stale, conform.Broken, conform.Unsupported
	for _, c := range []struct {
		verdicts []conform.Verdict
		want     Outcome
	}{
		{[]conform.Verdict{pass, pass, uns}, Conforms},
		{[]conform.Verdict{pass, dev}, WithDeviations},
		{[]conform.Verdict{dev, fail, broken}, DoesNotConform},
		{[]conform.Verdict{pass, broken}, Incomplete},
		{[]conform.Verdict{pass, stale}, Incomplete},
	} {
		got, err := New(judged(c.verdicts...), Subject{}, Judge{})
		if err != nil || got.Outcome != c.want || len(got.Clauses) != len(c.verdicts)+1 {
			t.Errorf("%v: %v %v, want %s", c.verdicts, got, err, c.want)
		}
	}
	part := judged(pass)
	part.Documents[0].Sections[0].Rows = append(part.Documents[0].Sections[0].Rows, conform.Row{ID: "roce/rc/psn/y", Level: "MUST", Clause: "C9-7", IDs: []string{"C9-7", "V1C09-007#01"}})
	if got, err := New(part, Subject{}, Judge{}); err != nil || got.Outcome != Incomplete || !strings.HasSuffix(got.Why, "1 not asked about: roce/rc/psn/y (C9-7, V1C09-007#01)") {
		t.Errorf("a clause without a case: %v %v", got, err)
	}
	many := judged(fail, fail, fail, fail, fail, fail, fail)
	if got, err := New(many, Subject{}, Judge{}); err != nil || !strings.HasSuffix(got.Why, "7 not met: roce/rc/psn/0, roce/rc/psn/1, roce/rc/psn/2, roce/rc/psn/3, roce/rc/psn/4 and 2 more") {
		t.Errorf("clauses that are not met: %v %v", got, err)
	}
	defective := judged(pass)
	defective.Devices[0].Defects = []string{"NAKStorm"}
	if _, err := New(defective, Subject{}, Judge{}); err == nil {
		t.Error("a device with injected defects is certified")
	}
}

// written returns a certificate and its folder.
func written(t *testing.T, verdicts ...conform.Verdict) (*Certificate, string) {
	t.Helper()
	dir := t.TempDir()
	run := judged(verdicts...)
	c, err := New(run, Subject{Device: "rxe0", Kind: "rxe-6.1", Firmware: "1.2.3", Driver: "rdma_rxe"}, Judge{Wire: "AF_PACKET on eth1", Blind: []string{"<nothing> much"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range run.Devices[0].Results {
		if r.Capture != "" {
			writeFile(t, dir, r.Capture, "packets of "+r.ID)
		}
	}
	must.Do(t, c.WriteFolder(dir))
	return c, dir
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o777))
	must.Do(t, os.WriteFile(file, []byte(text), 0o666))
}

// rewriteManifest writes the manifest of the present files, as a forger would.
func rewriteManifest(t *testing.T, dir string) {
	t.Helper()
	text := must.Get(manifest(dir))(t)
	writeFile(t, dir, ManifestFile, string(text))
}

func TestWrittenFolderVerifies(t *testing.T) {
	_, dir := written(t, conform.Pass, conform.Fail, conform.Unsupported)
	v, err := Verify(t.Context(), dir, "")
	if err != nil || v.Outcome != DoesNotConform || v.Files != 5 {
		t.Fatalf("%+v, %v", v, err)
	}
	page := must.Get(os.ReadFile(filepath.Join(dir, PageFile)))(t)
	for _, want := range []string{"Does not conform", "1.2.3", "AF_PACKET on eth1", "&lt;nothing&gt; much", "of 3 clauses of level MUST, 1 not met", `href="certificate.json"`} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if sum, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.CommandContext(t.Context(), sum, "-c", "--quiet", ManifestFile)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("sha256sum: %v: %s", err, out)
		}
	}
}

func TestVerifyDetectsTampering(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir string)
		want string
	}{
		"a capture is changed":                        {func(t *testing.T, dir string) { writeFile(t, dir, "captures/rc/psn/c0.pcapng", "other packets") }, "has been changed"},
		"a file is added":                             {func(t *testing.T, dir string) { writeFile(t, dir, "more.txt", "more") }, "has been added"},
		"the page is gone":                            {func(t *testing.T, dir string) { remove(t, dir, PageFile) }, "is missing"},
		"the manifest is gone":                        {func(t *testing.T, dir string) { remove(t, dir, ManifestFile) }, ManifestFile},
		"the manifest is rewritten for an added file": {func(t *testing.T, dir string) { writeFile(t, dir, "more.html", "more"); rewriteManifest(t, dir) }, "more.html is no part of a certificate"},
		"the page is changed and the manifest rewritten": {func(t *testing.T, dir string) {
			replace(t, dir, PageFile, "Does not conform", "Conforms")
			rewriteManifest(t, dir)
		}, PageFile + " does not match certificate.json"},
		"something follows the page": {func(t *testing.T, dir string) {
			replace(t, dir, PageFile, "</html>", "</html><p>")
			rewriteManifest(t, dir)
		}, PageFile + " does not match certificate.json"},
		"the JUnit results are changed and the manifest rewritten": {func(t *testing.T, dir string) {
			replace(t, dir, "junit.xml", "<failure", "<skipped")
			rewriteManifest(t, dir)
		}, "junit.xml" + " does not match certificate.json"},
		"the JUnit results are removed and the manifest rewritten": {func(t *testing.T, dir string) { remove(t, dir, "junit.xml"); rewriteManifest(t, dir) }, "junit.xml"},
		"a capture is removed": {func(t *testing.T, dir string) { remove(t, dir, "captures/rc/psn/c1.pcapng"); rewriteManifest(t, dir) }, "the capture of rc/psn/c1"},
		"the outcome is better than the results": {func(t *testing.T, dir string) {
			c := must.Get(Read(dir))(t)
			c.Outcome = Conforms
			var text bytes.Buffer
			must.Do(t, c.write(&text))
			writeFile(t, dir, File, text.String())
			rewriteManifest(t, dir)
		}, `has the outcome "conforms"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := written(t, conform.Pass, conform.Fail)
			c.do(t, dir)
			if _, err := Verify(t.Context(), dir, ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func replace(t *testing.T, dir, name, before, after string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !bytes.Contains(text, []byte(before)) {
		t.Fatalf("%s has no %q: %v", name, before, err)
	}
	writeFile(t, dir, name, strings.ReplaceAll(string(text), before, after))
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	must.Do(t, os.Remove(filepath.Join(dir, name)))
}

func TestSignature(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen here")
	}
	keys := t.TempDir()
	for _, name := range []string{"lab", "stranger"} {
		if out, err := exec.CommandContext(t.Context(), keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public := must.Get(os.ReadFile(filepath.Join(keys, "lab.pub")))(t)
	writeFile(t, keys, "signers", "lab@example.com "+string(public))
	signers := filepath.Join(keys, "signers")

	c, dir := written(t, conform.Pass)
	if _, err := Verify(t.Context(), dir, signers); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("not signed: %v", err)
	}
	must.Do(t, Sign(t.Context(), dir, filepath.Join(keys, "lab")))
	if v, err := Verify(t.Context(), dir, signers); err != nil || v.Signer != "lab@example.com" {
		t.Errorf("signed: %+v, %v", v, err)
	}
	writeFile(t, dir, "junit.xml", "<testsuites/>")
	rewriteManifest(t, dir)
	if _, err := Verify(t.Context(), dir, signers); err == nil || !strings.Contains(err.Error(), "invalid signature of") {
		t.Errorf("rewritten manifest: %v", err)
	}
	must.Do(t, c.WriteFolder(dir))
	must.Do(t, Sign(t.Context(), dir, filepath.Join(keys, "stranger")))
	if _, err := Verify(t.Context(), dir, signers); err == nil || !strings.Contains(err.Error(), "no signer in") {
		t.Errorf("signed by an unknown signer: %v", err)
	}
}

// setNumbers sets every reachable number, and adds an element to each empty list.
func setNumbers(v reflect.Value, n int64) {
	switch {
	case v.CanInt():
		v.SetInt(n)
	case v.CanUint():
		v.SetUint(uint64(n))
	case v.CanFloat():
		v.SetFloat(float64(n))
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		setNumbers(v.Elem(), n)
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			setNumbers(v.Index(i), n)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				setNumbers(v.Field(i), n)
			}
		}
	}
}

// Verify renders untrusted numbers: no number may make it panic.
func TestVerifyHandlesExtremeNumbers(t *testing.T) {
	for _, n := range []int64{0, -1, 1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		c, dir := written(t, conform.Pass, conform.Fail)
		setNumbers(reflect.ValueOf(&c.Run).Elem(), n)
		for i := range c.Run.Devices[0].Results {
			r := &c.Run.Devices[0].Results[i]
			for j := range r.Defective {
				r.Defective[j].Verdict = conform.Fail
			}
		}
		c.Run.Version = conform.Version
		var text bytes.Buffer
		must.Do(t, c.write(&text))
		writeFile(t, dir, File, text.String())
		rewriteManifest(t, dir)
		if _, err := Verify(t.Context(), dir, ""); err == nil {
			t.Errorf("%d: Verify succeeds", n)
		}
	}
}
