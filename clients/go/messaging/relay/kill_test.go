package relay_test

const childVariable = "OUTBOX_TEST_CHILD"

func child() int { return 0 }
