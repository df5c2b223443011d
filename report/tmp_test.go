package report_test

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/sample"
)

func BenchmarkHTML(b *testing.B) {
	run := sample.Large(4)
	for b.Loop() {
		var buf bytes.Buffer
		if err := report.WriteHTML(&buf, run); err != nil {
			b.Fatal(err)
		}
	}
}
