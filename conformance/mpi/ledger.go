package mpi

import (
	"embed"

	"github.com/fabrictest/fabrictest/conformance"
)

//go:embed ledger.yaml
var ledgerFile embed.FS

// Ledger is what MPI promises, as far as a program can see it, with the cases that check
// each promise or the reason why none can.
func Ledger() (*conformance.Document, error) {
	docs, err := conformance.ReadLedger(ledgerFile)
	if err != nil {
		return nil, err
	}
	return docs[0], nil
}
