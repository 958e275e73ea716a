package consulapi

import (
	"net/http"
	"time"
)

// Unreplaced has no blocking query of a handler lose its place to another one.
func Unreplaced(h http.Handler) http.Handler {
	h.(*server).waits.after = time.Hour
	return h
}
