package orders;

/** What is sent as JSON. */
record Order(String order, int number) {}
